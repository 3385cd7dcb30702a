"""The example notebook runs from its first cell to its last, and shows what its text says."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parent.parent / "docs" / "example.ipynb"


def execute(cells: list[str], names: dict[str, Any]) -> list[Any]:
    """Execute cells one after the other; what each shows: the value of its last expression."""
    shown = []
    for number, source in enumerate(cells):
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"cell {number}", "exec"), names)
        value = ast.Expression(last.value) if isinstance(last, ast.Expr) else None
        shown.append(eval(compile(value, f"cell {number}", "eval"), names) if value else None)
    return shown


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    shown = execute(["".join(cell["source"]) for cell in code], {"__name__": "__main__"})
    _, _, runs, boards, labels, scores = shown
    assert sorted(zip(runs.method, runs.seed, strict=True)) == [
        ("logistic", 0),
        ("logistic", 1),
        ("prior", 0),
        ("prior", 1),
    ]
    assert boards[0].rows[0].name == "logistic"
    assert "<table" in boards._repr_html_()
    assert runs[runs.method == "logistic"]["map"].min() > 0.9
    assert {"food", "traffic", "weather"} <= set(labels.index) | set(labels.get("label", ()))
    assert set(scores.columns) >= {"food", "traffic", "weather"}
    assert scores.index[0] == "test-0"
