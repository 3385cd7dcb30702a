"""What one run is trained and judged on: inputs, observed labels, the sealed truth, the test labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ssmlbench.core.spec import RunSpec
from ssmlbench.data import Task
from ssmlbench.inputs.splits import RowNumbers, SomeRows, SplitInputs
from ssmlbench.protocol import metrics
from ssmlbench.protocol.observation import Observation, observe
from ssmlbench.protocol.sealed import SealedTruth


@dataclass
class RunData:
    """The data of one run, as the trainer takes it."""

    train: SplitInputs
    test: SplitInputs  # the rows that are judged
    observation: Observation
    sealed: SealedTruth | None  # of the training rows; None: pseudo-labels are not graded
    test_truth: npt.NDArray[np.int8]  # N_test × K: for the metrics, and for `--selection oracle`

    @property
    def rows(self) -> dict[str, RowNumbers]:
        """Pool → its rows in the training split."""
        return {"labelled": self.observation.labelled, "unlabelled": self.observation.unlabelled}


def build_run_data(
    spec: RunSpec, task: Task, load: Callable[[str], SplitInputs]
) -> tuple[RunData, list[str]]:
    """The data of a run, and a line for everything about it that the user should know.

    load: split → inputs.
    """
    truth = task.truth("train")
    observation = observe(truth, spec)
    if spec.judged_on == "held-out":  # the test set is not opened, no truth is passed on
        train, rows = load("train"), observation.validation
        held_out = SomeRows(train, rows)
        return RunData(train, held_out, observation, None, observation.labels[rows]), []
    test_truth = task.truth("test")
    sealed = SealedTruth(truth)
    run_data = RunData(load("train"), load("test"), observation, sealed, test_truth)
    return run_data, _notes(task, observation, test_truth)


def _notes(task: Task, observation: Observation, test_truth: npt.NDArray[np.int8]) -> list[str]:
    names = task.card.label_names
    notes = []
    if skipped := sum(task.card.skipped.values()):
        notes.append(f"{skipped:,} bad rows of {task.card.name} were left out when it was prepared")
    if len(missing := observation.labels_without_positive):
        listed = ", ".join(names[k] for k in missing[:5]) + (", …" if len(missing) > 5 else "")
        notes.append(
            f"{len(missing)} of {len(names)} labels have no labelled positive ({listed}); nothing "
            "can be learnt of them at this seed and π"
        )
    if empty := metrics.empty_labels(test_truth):
        notes.append(
            f"{empty} of {len(names)} labels have no test positive: left out of mAP and Macro-F1"
        )
    return notes
