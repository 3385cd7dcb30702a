"""`ssmlbench report` and `plot`: their files, their options and mistakes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from ssmlbench.boards.analyses.drawing import (
    panels,
)
from ssmlbench.boards.board import Board
from ssmlbench.boards.csv_files import export
from ssmlbench.boards.report.analyses import AnalysisFigure
from ssmlbench.boards.report.figures import render
from ssmlbench.boards.report.style import (
    Styles,
)
from ssmlbench.core.errors import UserError
from tests.support.board_runs import grid


def test_the_command_writes_the_same_page_without_torch(
    results: Path, html: str, tmp_path: Path
) -> None:
    code = (
        "import sys; from ssmlbench.cli import app;"
        "app(sys.argv[1:], standalone_mode=False);"
        "assert 'torch' not in sys.modules"
    )
    words = [
        "report",
        "--results",
        results,
        "--metric",
        "map,hamming",
        "--out",
        tmp_path / "r.html",
    ]
    made = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, timeout=300
    )
    assert made.returncode == 0, made.stderr
    assert "48 runs" in made.stdout
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == html
    assert [file.name for file in tmp_path.iterdir()] == ["r.html"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "--results", "empty"], "no finished run here yet"),
        (["report", "--results", "none"], "no results folder at none"),
        (
            ["report", "--method", "no-such"],
            "--method no-such: none of the 48 finished runs fits. There is: ",
        ),
        (["report", "--metric", "maap"], "Did you mean map?"),
        (["report", "--out", "empty"], "--out empty is a folder; name a file"),
        (["report", "--out", "r.csv"], "--out r.csv: expected a name that ends with .html or .htm"),
        (["report", "--out", "none/r.html"], "there is no folder none"),
        (
            ["plot", "--figure", "curves"],
            "--figure curves: no such choice. There is: analyses, cost, pseudo",
        ),
        (["plot", "--format", "gif"], "--format gif: no such choice. There is: pdf, png, svg."),
        (["plot", "--format", "pdf", "--out", "file"], "file is not a folder; choose another"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(
    results: Path, tmp_path: Path, words: list[str], said: str, capsys: Any, monkeypatch: Any
) -> None:
    from ssmlbench.cli import main

    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    folder = [] if "--results" in words else ["--results", str(results)]
    monkeypatch.setattr(sys, "argv", ["ssmlbench", *words, *folder])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("verb", "out"), [("report", "made.html"), ("plot", "made")])
def test_a_page_and_figures_are_made_from_exported_runs(
    tmp_path: Path, verb: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ssmlbench.cli import app

    export(grid(tmp_path / "r", {"bce": [0.5], "cap": [0.6]}), tmp_path, "c")
    monkeypatch.chdir(tmp_path)  # without a folder `results`
    app(
        [verb, "--from", "toy.csv", "--metric", "mAP", "--out", out],
        standalone_mode=False,
    )
    assert (tmp_path / out).exists()


def test_a_page_that_cannot_be_written_leaves_nothing(
    boards: list[Board], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    from ssmlbench.boards.report import _write

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(UserError, match="No space left on device; choose another --out"):
        _write(tmp_path / "r.html", "page")
    assert list(tmp_path.iterdir()) == []


def test_a_figure_of_an_analysis_is_as_wide_as_its_longest_name() -> None:
    def width(name: str) -> float:
        figure, (axes,) = panels(1)
        axes.set_yticks([0], [name])
        axes.set_title(
            "difference to the method as it is, over every seed of one place", loc="left"
        )
        svg = render(AnalysisFigure("here", "title", "text", lambda: figure), Styles([]), "svg")
        return float(ET.fromstring(svg).attrib["viewBox"].split()[2])

    assert width("negatives_per_positive=none") > width("a") + 20
