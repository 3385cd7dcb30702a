"""A damaged file of a run is named by every analysis that would have read it, and by the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ssmlbench.boards.analyses import analyses_by_name
from ssmlbench.boards.analyses.damage import NothingSound, find_with
from ssmlbench.boards.query import Query
from ssmlbench.boards.report.analyses import analysis_sections
from tests.support.analysed_runs import LABELS, cells, write_run

READ = {
    "labels": "scores.safetensors",
    "scores": "scores.safetensors",
    "gallery": "scores.safetensors",
    "pseudo-labels": "diagnostics.safetensors",
    "vdfd": "diagnostics.safetensors",
}


def damaged_runs(root: Path, name: str, *levels: float) -> None:
    """A run at two π; those at the levels have a damaged file."""
    rng = np.random.default_rng(0)
    diagnostics: dict[str, Any] = {
        "pseudo_epochs": np.array([1, 2]),
        "pseudo_counts": rng.integers(1, 9, (2, 5, LABELS)).astype(np.float32),
        "sample_epochs": np.array([1, 2]),
        "supervised": rng.random((2, 6, LABELS)).astype(np.float32),
        "trained_on": rng.random((2, 6, LABELS)).astype(np.float32),
    }
    for pi in (0.1, 0.25):
        file = write_run(root, 0.3 + pi, diagnostics, method="cap", pi=pi) / READ[name]
        if pi in levels:
            file.write_bytes(file.read_bytes()[:-4])


def find(name: str, root: Path) -> str:
    """The notes of all tables."""
    analysis = analyses_by_name()[name]
    options = {option.name: option.default for option in analysis.options}
    found = find_with(analysis, cells(root), Query(), options)
    assert found
    return " ".join(note for one in found for note in one.table.notes)


@pytest.mark.parametrize("name", READ)
def test_damage_that_leaves_nothing_of_a_cell_is_told(name: str, tmp_path: Path) -> None:
    damaged_runs(tmp_path / "one", name, 0.1)
    assert READ[name] in find(name, tmp_path / "one")
    damaged_runs(tmp_path / "all", name, 0.1, 0.25)
    with pytest.raises(NothingSound, match=READ[name]):
        find(name, tmp_path / "all")
    damaged_runs(tmp_path / "none", name)
    assert "damaged" not in find(name, tmp_path / "none")


def test_a_report_has_the_damage_in_the_place_of_an_analysis(tmp_path: Path) -> None:
    damaged_runs(tmp_path, "pseudo-labels", 0.1, 0.25)
    boards = list({id(cell.board): cell.board for cell in cells(tmp_path)}.values())
    sections = {section.name: section for section in analysis_sections(boards, Query())}
    assert "damaged" in sections["pseudo-labels"].notes[0]
