"""Finished runs with chosen scores, for tests of boards."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from ssmlbench.boards.board import Board
from ssmlbench.boards.build import build_boards
from ssmlbench.boards.query import Query
from ssmlbench.core.spec import RunSpec
from ssmlbench.protocol.decisions import RULES
from ssmlbench.protocol.metrics import METRICS
from ssmlbench.runs.finished import Finished
from ssmlbench.runs.folder import RunFolder

BASE = RunSpec("bce", "toy", pi=0.1, code="c1", data="d1")


def finished(root: Path, spec: RunSpec, value: float) -> Finished:
    """Write a finished run whose mAP, Micro- and Macro-F1 are `value` and whose losses are 1 - `value`."""
    five = {key: value if metric.higher_is_better else 1 - value for key, metric in METRICS.items()}
    result = {
        "spec": spec.as_dict(),
        "metrics": {d: {"default": five, "released": five} for d in RULES},
        "cost": {"seconds": 2.0, "seconds_per_epoch": 1.0, "peak_memory_mb": 3.0},
    }
    folder = RunFolder.of(root, spec)
    folder.path.mkdir(parents=True)
    folder.result_file.write_text(json.dumps(result))
    return Finished(spec, result, folder.path)


def grid(root: Path, values: dict[str, list[float]], **changes: Any) -> list[Finished]:
    """Write one run for each method and seed: `{"bce": [0.5, 0.7]}` is two seeds of bce."""
    return [
        finished(root, dataclasses.replace(BASE, method=method, seed=seed, **changes), value)
        for method, per_seed in values.items()
        for seed, value in enumerate(per_seed)
    ]


def one_board(runs: list[Finished], **query: Any) -> Board:
    """Return the only board of the runs."""
    (board,) = build_boards(runs, Query(**query))
    return board
