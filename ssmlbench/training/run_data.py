"""What one run is trained on: inputs, observed labels, and the desk of the judge. No hidden label."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs.splits import RowNumbers, SomeRows, SplitInputs
from ssmlbench.protocol.judge import Judge, JudgeDesk, judged_rows, rows_from_train
from ssmlbench.protocol.observation import Observation


@dataclass
class RunData:
    """The data of one run, as the trainer takes it."""

    train: SplitInputs
    test: SplitInputs  # the rows that are judged
    observation: Observation
    judge: JudgeDesk
    judged_epochs: int = (
        sys.maxsize
    )  # a checkpoint of more epochs is older than what the judge knows

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
    judge: JudgeDesk,
    load: Callable[[str], SplitInputs],
) -> RunData:
    """The data of a run. load: split → inputs; the test set is opened if it is judged."""
    train = load("train")
    rows = judged_rows(spec, observation)
    test = SomeRows(train, rows) if rows_from_train(spec) else load("test")
    return RunData(train, test, observation, judge)
