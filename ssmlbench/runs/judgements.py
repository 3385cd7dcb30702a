"""A judge whose judgements are saved to disk and survive a kill, like the trainer's checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import torch

from ssmlbench.core.spec import RunSpec
from ssmlbench.data import Task
from ssmlbench.protocol.diagnostics import Records
from ssmlbench.protocol.judge import Judge, Judgements, rows_from_train
from ssmlbench.training.checkpoint import Checkpoint


class StoredJudge(Judge):
    """A judge that keeps its judgements in a file."""

    file: Checkpoint

    @classmethod
    def open(cls, spec: RunSpec, task: Task, file: Checkpoint) -> StoredJudge:
        """The judge of a run on a task; it continues from the judgements in the file, if any."""
        test_truth = None if rows_from_train(spec) else task.truth("test")
        judge = cls.of(spec, task.truth("train"), test_truth)
        assert isinstance(judge, cls)
        judge.file = file
        judge.judgements = _read(file)
        return judge

    def save(self, epoch: int) -> None:
        """Write all judgements up to this epoch."""
        super().save(epoch)
        found = self.judgements
        facts: dict[str, Any] = {
            "epoch": found.epochs,
            "by_epoch": {str(number): values for number, values in found.by_epoch.items()},
            "best": found.best,
            "selected_epoch": found.selected_epoch,
        }
        arrays = {} if found.scores is None else {"scores": found.scores, **found.rule_parameters}
        self.file.write(
            {"judged": _tensors(arrays), "records": _tensors(found.records.arrays())}, facts
        )


def _tensors(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, torch.Tensor]:
    # Arrays from another process may be read-only, which torch warns about.
    return {
        name: torch.from_numpy(array if array.flags.writeable else array.copy())
        for name, array in arrays.items()
    }


def _read(file: Checkpoint) -> Judgements:
    stored = file.read()
    if stored is None:
        return Judgements()
    facts = stored.facts
    arrays = {name: value.numpy() for name, value in stored.tensors.get("judged", {}).items()}
    return Judgements(
        epochs=stored.epochs,
        by_epoch={int(number): dict(values) for number, values in facts["by_epoch"].items()},
        best=facts["best"],
        selected_epoch=facts["selected_epoch"],
        scores=arrays.pop("scores", None),
        rule_parameters=arrays,
        records=Records.from_arrays(
            {n: v.numpy() for n, v in stored.tensors.get("records", {}).items()}
        ),
    )
