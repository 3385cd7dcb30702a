"""The judge's file: what it holds, and that writing it is silent."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from ssmlbench.protocol.judge import Judgements
from ssmlbench.runs.judgements import StoredJudge
from ssmlbench.training.checkpoint import Checkpoint


@pytest.mark.parametrize("writeable", [True, False], ids=["own memory", "another process's"])
def test_scores_are_stored_without_a_warning(tmp_path: Path, writeable: bool) -> None:
    scores = np.linspace(0, 1, 6, dtype=np.float32).reshape(3, 2)
    scores.flags.writeable = writeable
    judge = StoredJudge.__new__(StoredJudge)
    judge.file = Checkpoint(tmp_path / "judged.safetensors")
    judge.judgements = Judgements(scores=scores)
    torch.set_warn_always(True)  # torch warns of a read-only array once in a process
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            judge.save(1)
    finally:
        torch.set_warn_always(False)
    stored = judge.file.read()
    assert stored is not None
    assert np.array_equal(stored.tensors["judged"]["scores"].numpy(), scores)
