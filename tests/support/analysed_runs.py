"""Finished runs with scores and diagnostics, for tests of analyses."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from ssmlbench.boards.analyses.contract import RunCell, run_cells
from ssmlbench.boards.build import build_boards
from ssmlbench.boards.query import Query
from ssmlbench.core.spec import RunSpec
from ssmlbench.protocol.metrics import evaluate_rules
from ssmlbench.runs.diagnostics import Diagnostics
from ssmlbench.runs.finished import read_finished
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.scores import StoredScores

BASE = RunSpec("cap", "toy", pi=0.25, code="c1", data="d1", epochs=4, warmup_epochs=1)
ROWS, LABELS = 40, 3
TRUTH = np.random.default_rng(1).random((ROWS, LABELS)) < [0.6, 0.4, 0.2]
NAMES = ["sun", "sea", "sand"]


def scores_of(quality: float, seed: int) -> np.ndarray:
    """Scores that are the more right the higher the quality; in [0, 1]."""
    noise = np.random.default_rng([seed, int(100 * quality)]).random(TRUTH.shape)
    return (quality * TRUTH + (1 - quality) * noise).astype(np.float32)


def write_run(
    root: Path, quality: float, diagnostics: dict[str, Any] | None = None, **changes: Any
) -> Path:
    """A finished run; diagnostics: arrays of its diagnostics file, None for a run that has none."""
    spec = dataclasses.replace(BASE, **changes)
    folder = RunFolder.of(root, spec)
    folder.path.mkdir(parents=True)
    stored = StoredScores(
        scores_of(quality, spec.seed), TRUTH, {"thresholds": np.full(LABELS, 0.5, np.float32)}
    )
    stored.write(folder.scores_file)
    result = {
        "spec": spec.as_dict(),
        "hash": spec.hash,
        "metrics": evaluate_rules(stored.scores, TRUTH, stored.parameters),
        "cost": {"seconds": 10 * quality, "seconds_per_epoch": 1.0, "peak_memory_mb": 3.0},
        "data": {"rows": {"train": 100, "test": ROWS}, "labels": LABELS},
    }
    folder.result_file.write_text(json.dumps(result))
    if diagnostics is not None:
        Diagnostics(diagnostics, NAMES).write(folder.path)
    return folder.path


def cells(root: Path, **query: Any) -> list[RunCell]:
    runs, _ = read_finished([root])
    return run_cells(build_boards(runs, Query(**query)))
