"""The data of one run's training: inputs, observed labels, and the judge's interface. No hidden label."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs.splits import RowNumbers, SomeRows, SplitInputs
from ssmlbench.protocol.judge import Judge, JudgeInterface, judged_rows, rows_from_train
from ssmlbench.protocol.observation import Observation


@dataclass
class RunData:
    """The data of one run, as the trainer takes it."""

    train: SplitInputs
    test: SplitInputs  # the rows that are judged
    observation: Observation
    judge: JudgeInterface
    # Epochs that the judge has saved: a checkpoint with more epochs cannot be continued.
    judged_epochs: int = sys.maxsize

    @property
    def rows(self) -> dict[str, RowNumbers]:
        """Pool → its rows in the training split."""
        return {"labelled": self.observation.labelled, "unlabelled": self.observation.unlabelled}

    @classmethod
    def beside(cls, judge: Judge, train: SplitInputs, test: SplitInputs) -> RunData:
        """The data of a run whose judge is in this process."""
        return cls(train, test, judge.visible(), judge)


def load_run_data(
    spec: RunSpec,
    observation: Observation,
    judge: JudgeInterface,
    load: Callable[[str], SplitInputs],
) -> RunData:
    """The data of a run. load: split → inputs; the test set is opened only if the run is judged on it."""
    train = load("train")
    rows = judged_rows(spec, observation)
    test = SomeRows(train, rows) if rows_from_train(spec) else load("test")
    return RunData(train, test, observation, judge)
