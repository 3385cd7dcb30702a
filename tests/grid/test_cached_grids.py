"""A command whose runs are all made finds that out without planning them again, and only then."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ssmlbench.core.paths import cache_root

Typed = Callable[..., "subprocess.CompletedProcess[str]"]

WITHOUT_TORCH = """
import sys
sys.modules["torch"] = sys.modules["sklearn"] = None  # importing either is an error
from ssmlbench.cli import main
main()
"""


@pytest.fixture
def grid(tmp_path: Path, in_this_process: None) -> list[str]:
    """A grid of four quick runs on a table."""
    random = np.random.default_rng(0)
    parts = {f"X_{split}": random.normal(size=(24, 3)) for split in ("train", "test")}
    labels = {f"y_{split}": np.eye(2, dtype=int)[np.arange(24) % 2] for split in ("train", "test")}
    folder = tmp_path / "shop.npz"
    np.savez(folder, **parts, **labels)
    return ["run", "--method", "prior,knn", "--dataset", str(folder), "--pi", "0.5", "--seeds", "2"]


def cached_files() -> set[Path]:
    return set((cache_root() / "grids").glob("*.json"))


def typed_without_torch(folder: Path, grid: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *grid],
        cwd=folder,
        text=True,
        capture_output=True,
        env={**os.environ, "COLUMNS": "200"},
        check=False,
    )


def test_a_grid_that_is_made_is_told_without_torch_in_the_same_words(
    tmp_path: Path, grid: list[str], ssmlbench: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ssmlbench(*grid).returncode == 0
    monkeypatch.setattr("ssmlbench.grid.cached_grids.CachedGrid.finished_runs", lambda *_: None)
    planned = ssmlbench(*grid).stdout
    monkeypatch.undo()
    assert planned.count("already done") == 4
    assert "4 already there" in planned
    told = typed_without_torch(tmp_path, grid)
    assert (told.returncode, told.stdout) == (0, planned), told.stderr
    assert typed_without_torch(tmp_path, [*grid, "--quiet"]).stdout == ""
    assert typed_without_torch(tmp_path, [*grid, "--dry-run"]).returncode != 0  # it plans


@pytest.mark.parametrize("change", ["deleted", "shortened", "later", "result"])
def test_a_run_that_was_touched_is_planned_and_made_again(
    change: str, grid: list[str], ssmlbench: Typed, tmp_path: Path
) -> None:
    ssmlbench(*grid)
    run = next((tmp_path / "results" / "shop").glob("*/prior/0-*"))
    scores = run / "scores.safetensors"
    if change == "deleted":
        (run / "result.json").unlink()
    elif change == "shortened":
        scores.write_bytes(scores.read_bytes()[:-3])
    elif change == "later":
        content = bytearray(scores.read_bytes())
        content[-1] ^= 1
        scores.write_bytes(content)
    else:
        (run / "result.json").write_text("{")
    found = ssmlbench(*grid).stdout
    assert "1 done, 3 already there" in found
    assert "0 done, 4 already there" in ssmlbench(*grid).stdout


def test_another_request_other_data_and_edited_code_are_other_grids(
    grid: list[str], ssmlbench: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cached_files()
    ssmlbench(*grid)
    (first,) = cached_files() - before
    ssmlbench(*grid)
    assert cached_files() - before == {first}
    ssmlbench(*grid, "--set", "knn.neighbours=3")
    assert len(cached_files() - before) == 2
    monkeypatch.setattr("ssmlbench.grid.cached_grids.code_state", lambda: "edited")
    ssmlbench(*grid)
    assert len(cached_files() - before) == 3
    monkeypatch.undo()
    arrays = dict(np.load(tmp_path / "shop.npz"))
    np.savez(tmp_path / "shop.npz", **{**arrays, "X_train": arrays["X_train"] + 1})
    found = ssmlbench(*grid).stdout
    assert "4 done, 0 already there" in found


def test_what_may_change_without_a_trace_is_planned_each_time(
    grid: list[str], ssmlbench: Typed, tmp_path: Path
) -> None:
    before = cached_files()
    assert ssmlbench("new", "estimator", "mine").returncode == 0
    own = [*grid[:2], "mine,prior", *grid[3:], "--plugin", "mine.py"]
    assert ssmlbench(*own).returncode == 0
    assert "4 already there" in ssmlbench(*own).stdout
    assert cached_files() == before


def test_a_damaged_memory_is_no_memory(grid: list[str], ssmlbench: Typed) -> None:
    before = cached_files()
    ssmlbench(*grid)
    (file,) = cached_files() - before
    for content in ("{", "[]", '{"runs": [[1]]}', '{"runs": 3}', ""):
        file.write_text(content)
        assert "4 already there" in ssmlbench(*grid).stdout
