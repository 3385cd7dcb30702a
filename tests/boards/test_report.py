"""The report: which numbers its figures show, and a page that is whole, inert and always the same."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from ssmlbench.boards.analyses.drawing import (
    panels,
)
from ssmlbench.boards.board import Board
from ssmlbench.boards.build import build_boards
from ssmlbench.boards.csv_files import export
from ssmlbench.boards.query import Query
from ssmlbench.boards.report import sections as sections_module
from ssmlbench.boards.report import write_figures
from ssmlbench.boards.report.analyses import AnalysisFigure
from ssmlbench.boards.report.critical_difference import critical_differences
from ssmlbench.boards.report.figures import render
from ssmlbench.boards.report.histories import (
    CellHistories,
    History,
    downsampled,
    mean_curve,
    read_history,
)
from ssmlbench.boards.report.html import html_page, summary_tables
from ssmlbench.boards.report.inline_svg import for_page
from ssmlbench.boards.report.provenance import listings
from ssmlbench.boards.report.sections import report_sections, styles_of
from ssmlbench.boards.report.series import (
    Point,
    cost_quality,
    dots,
    named,
    over_levels,
    pareto_front,
)
from ssmlbench.boards.report.style import (
    MUTED,
    Styles,
)
from ssmlbench.boards.report.text import clean
from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import PROTOCOL_VERSION
from ssmlbench.protocol.metrics import METRICS
from ssmlbench.runs.finished import Finished, read_finished
from tests.conftest import ROOT
from tests.support.board_runs import grid, one_board
from tests.support.report_runs import CLOSING, HOSTILE, IMAGE, SCRIPT, write_results

MAP = METRICS["map"]
QUERY = Query(metrics=("map", "hamming"))
ASSETS = ROOT / "ssmlbench" / "boards" / "report" / "assets"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_results(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def boards(results: Path) -> list[Board]:
    return build_boards(read_finished([results])[0], QUERY)


@pytest.fixture(scope="module")
def html(boards: list[Board]) -> str:
    return html_page(boards, report_sections(boards, QUERY), QUERY)


# ------------------------------------------------------------------------------------- the series


def test_a_metric_over_pi_is_the_mean_and_std_of_each_level(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"bce": [0.5, 0.7]}, pi=0.1) + grid(tmp_path, {"bce": [0.8]}, pi=0.2)
    series = over_levels(one_board(runs), MAP)
    (line,) = series.lines
    assert (line.x, line.mean) == ((0.1, 0.2), pytest.approx((0.6, 0.8)))
    assert line.std == pytest.approx(
        (0.02**0.5, 0.0)
    )  # sample std of 0.5 and 0.7; one seed has none
    assert series.alt.endswith("Best at π = 0.2: bce with 0.8000.")


def test_with_one_level_each_method_is_a_row_with_its_seeds(tmp_path: Path) -> None:
    board = one_board(grid(tmp_path, {"bce": [0.5, 0.7], "cap": [0.8, 0.9]}))
    best, worst = dots(board, METRICS["hamming"], "0.1").dots
    assert (best.name, worst.name) == ("cap", "bce")  # the lower loss on top
    assert worst.values == pytest.approx((0.5, 0.3))


def test_crowded_figures_name_the_best_and_the_baseline() -> None:
    many = [*"abcdefgh", "bce", "z"]
    assert named(many) == ("a", "b", "c", "d", "e", "bce")
    assert named(["a", "b", "bce"]) == ("a", "b", "bce")


def test_nobody_on_the_front_is_beaten_in_both() -> None:
    points = [
        Point("cheap", 1, 0.5), Point("twin", 1, 0.5), Point("good", 2, 0.8),
        Point("dear", 3, 0.8), Point("poor", 1.5, 0.4),
    ]  # fmt: skip
    assert pareto_front(points, higher_is_better=True) == ("cheap", "twin", "good")
    assert pareto_front(points, higher_is_better=False) == ("cheap", "twin", "poor")


def test_cost_is_set_against_the_metric_asked_for(boards: list[Board]) -> None:
    toy = next(board for board in boards if board.dataset == "toy")
    series = cost_quality(
        toy, Query(metrics=("hamming",)), sections_module.COSTS["seconds_per_epoch"], "0.05"
    )
    point = next(p for p in series.points if p.name == "bce")
    # seeds score 0.55 and 0.56, take ten times that, and lose 1 - that
    assert (point.cost, point.quality) == (pytest.approx(5.55), pytest.approx(0.445))


def test_critical_difference_of_three_methods_in_a_fixed_order(tmp_path: Path) -> None:
    runs: list[Finished] = []
    for level in range(1, 7):
        values = {"best": [0.9 - 0.1 * level], "middle": [0.2 - 0.01 * level], "last": [0.05]}
        runs += grid(tmp_path, values, pi=0.1 * level)
    by_regime, notes = critical_differences([one_board(runs)], [MAP])
    (diagram,) = by_regime["semi"]
    assert diagram.names == ("best", "middle", "last")
    assert diagram.ranks == (1.0, 2.0, 3.0)
    assert diagram.difference == pytest.approx(1.353, abs=1e-3)  # 2.343 √(3 · 4 / (6 · 6))
    assert diagram.cliques == ((0, 1), (1, 2))
    assert any("rough" in note for note in notes)


def test_too_few_cells_give_a_reason_in_place_of_a_diagram(tmp_path: Path) -> None:
    by_regime, notes = critical_differences([one_board(grid(tmp_path, {"a": [0.5]}))], [MAP])
    assert not by_regime
    assert notes == [
        "semi: no diagram and no Friedman test: it needs at least 3 methods measured in every block, "
        "here are 0."
    ]


# ---------------------------------------------------------------------------------- the histories


def test_curves_are_averaged_epoch_by_epoch() -> None:
    nan = float("nan")
    one = History((1, 2, 3), 1, {"loss_a": (nan, 0.4, 0.2)})
    other = History((1, 2), 1, {"loss_a": (nan, 0.6)})
    line = mean_curve("a", [one, other], "loss_a")
    assert line is not None
    assert (line.x, line.mean) == ((2, 3), pytest.approx((0.5, 0.2)))
    assert line.std == pytest.approx((0.02**0.5, 0.0))
    assert mean_curve("b", [one, other], "loss_b") is None


def test_long_histories_are_downsampled_and_keep_their_end() -> None:
    assert downsampled(range(1, 101)) == list(range(1, 101))
    assert downsampled(range(1, 251)) == list(range(1, 251, 3))
    assert downsampled(range(1, 252))[-1] == 251


@pytest.mark.parametrize(
    "text", ["", "epoch,phase\nx,semi\n", "a,b\n1,2\n", "epoch,phase\n2,s\n1,s\n"]
)
def test_a_broken_history_is_left_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "history.csv").write_text(text)
    run = grid(tmp_path / "r", {"bce": [0.5]})[0]
    assert read_history(Finished(run.spec, run.result, tmp_path)) is None
    assert read_history(Finished(run.spec, run.result, tmp_path / "none")) is None


def test_a_cell_has_losses_diagnostics_and_pseudo_label_quality(boards: list[Board]) -> None:
    toy = next(board for board in boards if board.dataset == "toy")
    cell = CellHistories(toy, "0.05")
    losses, diagnostics = cell.curves("bce")
    assert [line.name for line in losses.lines] == ["labelled"]
    assert losses.lines[0].mean == pytest.approx(
        (0.85, 0.4, 0.4, 0.1)
    )  # seeds start at 0.8 and 0.9
    assert (losses.warm_up, losses.seeds) == (2, 2)
    assert diagnostics.lines[0].x == (3, 4)
    (precision,) = cell.pseudo_labels()
    assert len(precision.lines) == 4
    assert precision.lines[0].mean == pytest.approx((0.5, 0.85))


# --------------------------------------------------------------------------------------- the page


class Reading(HTMLParser):
    """The page's elements with their attributes, and its text."""

    def __init__(self, html: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def reading(html: str) -> Reading:
    return Reading(html)


def test_every_element_is_closed_and_every_id_is_there_once(reading: Reading) -> None:
    assert reading.open == []
    ids = Counter(a["id"] for _, a in reading.elements if "id" in a)
    assert [name for name, count in ids.items() if count > 1] == []
    targets = [a["href"] for _, a in reading.elements if a.get("href")]
    assert {str(target).removeprefix("#") for target in targets} <= set(ids)
    clips = [
        re.findall(r"#([^)]+)", a["clip-path"] or "")
        for _, a in reading.elements
        if "clip-path" in a
    ]
    assert {clip for found in clips for clip in found} <= set(ids)


def test_the_page_asks_for_nothing(html: str, reading: Reading) -> None:
    for tag, attributes in reading.elements:
        assert tag not in ("img", "link", "iframe", "object", "embed", "image", "base", "form"), tag
        assert "src" not in attributes
        assert str(attributes.get("href") or "#").startswith("#")
    assert "http:" not in html
    assert "https:" not in html
    assert not re.search(r"url\((?!#)", html)
    assert "@import" not in html


def test_the_policy_allows_the_pages_own_script_and_style_alone(
    html: str, reading: Reading
) -> None:
    policy = next(a["content"] for _, a in reading.elements if "http-equiv" in a)
    assert str(policy).startswith("default-src 'none';")
    assert "unsafe" not in str(policy)
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in str(policy)
    assert [
        a for _, a in reading.elements if any(n == "style" or n.startswith("on") for n in a)
    ] == []


def test_hostile_names_are_shown_as_text(html: str, reading: Reading) -> None:
    assert [tag for tag, _ in reading.elements if tag == "script"] == ["script"]
    text = "".join(reading.words)
    for name in HOSTILE:
        assert name in text
        assert name not in html
    assert [
        a for t, a in reading.elements if t == "b" and not a
    ] != []  # ours: the best of a column
    assert "\x00" not in html


def test_every_figure_is_there_with_words_for_it(boards: list[Board], reading: Reading) -> None:
    expected = [clean(series.alt) for s in report_sections(boards, QUERY) for series in s.series]
    drawings = [a for tag, a in reading.elements if tag == "svg"]
    assert [a["aria-label"] for a in drawings] == expected
    assert all(a["role"] == "img" for a in drawings)
    keys = {s.key: len(list(s.series)) for s in report_sections(boards, QUERY)}
    # 2 boards × 2 metrics; a diagram a metric; 1 cell with histories; 4 methods × 2; 6 cells × 2 costs
    figures = {"quality": 4, "ranks": 2, "pseudo": 1, "training": 8, "cost": 12}
    # the first data set has three levels; the runs have neither scores nor diagnostics
    assert keys == {**figures, "analysis-budget": 1}
    assert "40 runs have no readable history.csv" in "".join(reading.words)


def test_tables_have_captions_scopes_marks_and_notes(html: str, reading: Reading) -> None:
    tags = Counter(tag for tag, _ in reading.elements)
    assert (
        tags["caption"] == tags["table"] == 1 + 2 * 2 + 4
    )  # the summary; a table a metric of each board; provenance
    scopes = {a.get("scope") for tag, a in reading.elements if tag == "th"}
    assert scopes == {"col", "row", "colgroup"}
    # cap is best and bce second in each of the 12 columns, and in the 6 of the summary
    assert html.count("<b>") == html.count("<u>") - 1 == 18  # one <u> explains itself
    assert "label sets by per-label thresholds" in html


def test_oracle_marks_are_on_the_page(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"a": [0.5], "b": [0.6]}, selection="oracle")
    query = Query(metrics=("hamming",), decision="top-k")
    html = html_page(build_boards(runs, query), [], query)
    assert "b †</span>" in html
    assert "Hamming loss‡ ↓" in html
    assert "† the epoch was selected on the test set" in html


def test_provenance_lists_versions_data_files_and_runs(boards: list[Board], html: str) -> None:
    runs = [run for board in boards for run in board.runs]
    versions, data, methods, listed = listings(runs)
    assert versions.rows == (("–", "2.0", "–", CLOSING, "–", "–", "48"),)
    assert (IMAGE, "da7a", "test 4, train 8", "3", "24") in data.rows
    assert (SCRIPT, "c0de", str(PROTOCOL_VERSION), "12") in methods.rows
    assert {row[4] for row in listed.rows} == {run.spec.hash for run in runs}
    assert all(run.spec.hash in html for run in runs)


# ------------------------------------------------------------------------------------- the figures


@pytest.mark.parametrize("kind", ["pdf", "png", "svg"])
def test_a_figure_has_the_same_bytes_each_time(boards: list[Board], kind: str) -> None:
    series = over_levels(boards[0], MAP)
    once, again = (render(series, styles_of(boards), kind) for _ in range(2))
    assert once == again
    assert once.startswith({"pdf": b"%PDF", "png": b"\x89PNG", "svg": b"<?xml"}[kind])
    assert b"Date" not in once


def test_a_drawing_keeps_only_what_is_allowed() -> None:
    drawn = b"""<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">
      <script>alert(1)</script><image xlink:href="http://x"/><style>*{}</style>
      <defs><path id="m1" d="M 1.23456 2"/></defs><g id="unused" onclick="x()">
      <use xlink:href="#m1" style="fill: #0072b2; stroke: #8a8f98"/><use xlink:href="http://x"/>
      <text style="font: 9px 'DejaVu Sans'">a &lt; b</text></g></svg>"""
    root = ET.fromstring(for_page(drawn, 'say "x"', "f7-"))
    assert [e.tag for e in root.iter()] == ["svg", "defs", "path", "use", "use", "text"]
    path, use, elsewhere, text = list(root.iter())[2:]
    assert path.attrib == {"id": "f7-m1", "d": "M1.2 2"}
    assert use.attrib == {"href": "#f7-m1", "fill": "var(--hue-1)", "stroke": "var(--muted)"}
    assert elsewhere.attrib == {}
    assert (text.attrib, text.text) == ({"font-size": "9"}, "a < b")
    assert root.get("aria-label") == 'say "x"'
    assert MUTED == "#8a8f98"


def test_figures_are_written_one_a_file(boards: list[Board], tmp_path: Path) -> None:
    toy = [board for board in boards if board.dataset == "toy"]
    written = write_figures(toy, QUERY, tmp_path / "new" / "figures", ("svg",))
    assert sorted(written) == sorted((tmp_path / "new" / "figures").iterdir())
    names = {file.name for file in written}
    assert "quality-toy-semi-map-over-pi.svg" in names
    assert "training-toy-semi-pi-0.05-bce-losses.svg" in names
    assert "cost-toy-semi-pi-0.2-map-against-s-epoch.svg" in names


def test_figures_of_one_kind_are_written_alone(boards: list[Board], tmp_path: Path) -> None:
    toy = [board for board in boards if board.dataset == "toy"]
    written = write_figures(toy, QUERY, tmp_path / "q", ("svg",), ("quality", "cost"))
    assert {file.name.partition("-")[0] for file in written} == {"quality", "cost"}
    with pytest.raises(UserError, match=r"no figure of ranks to draw\. semi: no diagram"):
        write_figures(toy, QUERY, tmp_path / "none", ("svg",), ("ranks",))
    assert not (tmp_path / "none").exists()


def test_the_summary_has_every_method_on_every_data_set(boards: list[Board]) -> None:
    (table,) = summary_tables(boards, QUERY)
    assert [heading.dataset for heading in table.headings] == ["", *[IMAGE] * 3, *["toy"] * 3, ""]
    assert table.spans == [("", 1, ""), (IMAGE, 3, IMAGE), ("toy", 3, "toy"), ("", 1, "")]
    best = table.rows[0]
    assert best.method == f"cap (loss={CLOSING})"
    assert [cell.text for cell in best.cells[1:]] == [
        *["0.655", "0.705", "0.805"] * 2,
        "1.00",
    ]


def test_rows_know_what_they_learn_from(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"bce": [0.5], "cap": [0.6], "old": [0.4]})
    for run, uses in zip(runs, ("labelled rows", "both pools", ""), strict=True):
        run.result["uses"] = uses
    boards = build_boards(runs, QUERY)
    (table,) = summary_tables(boards, QUERY)
    assert {row.method: row.tier for row in table.rows} == {
        "bce": "labelled",
        "cap": "both",
        "old": "",
    }
    assert 'data-method="bce" data-tier="labelled"' in html_page(boards, [], QUERY)


def test_tests_that_find_nothing_share_one_note(tmp_path: Path) -> None:
    runs: list[Finished] = []
    for level in range(1, 7):
        order = ("a", "b", "c") if level % 2 else ("c", "b", "a")
        values = {name: [0.5 + 0.1 * i] for i, name in enumerate(order)}
        runs += grid(tmp_path, values, pi=0.1 * level)
    metrics = [METRICS[key] for key in ("map", "micro_f1", "hamming")]
    _, notes = critical_differences([one_board(runs)], metrics)
    found = [note for note in notes if "finds no difference" in note]
    assert len(found) == 1
    assert "mAP (p = 1), Micro-F1 (p = 1), Hamming loss (p = 1)" in found[0]
    assert len(notes) == len(set(notes)) <= 3


def test_many_curves_are_capped_and_the_page_says_so(
    boards: list[Board], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sections_module, "CURVES", 3)
    monkeypatch.setattr(sections_module, "CELLS", 4)
    found = {section.key: section for section in report_sections(boards, QUERY)}
    assert sum(len(group.toggles) for group in found["training"].groups) == 3
    assert any("Curves of 3 of 4" in note for note in found["training"].notes)
    assert len(found["cost"].groups) == 4
    assert any("first 4 of 6" in note for note in found["cost"].notes)


# ------------------------------------------------------------------------------- the command line


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
        (["report", "--method", "no-such"], "none of the 48 finished runs fits"),
        (["report", "--metric", "maap"], "Did you mean map?"),
        (["report", "--out", "empty"], "--out empty is a folder; name a file"),
        (["report", "--out", "none/r.html"], "there is no folder none"),
        (
            ["plot", "--figure", "curves"],
            "--figure curves: no such choice. There is: analyses, cost, pseudo",
        ),
        (["plot", "--format", "gif"], "--format gif: no such choice. There is: pdf, png, svg."),
        (["plot", "--format", "pdf", "--out", "file"], "cannot make the folder --out file"),
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


@pytest.mark.parametrize("verb", ["report", "plot"])
def test_a_page_and_figures_are_made_from_exported_runs(
    tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ssmlbench.cli import app

    export(grid(tmp_path / "r", {"bce": [0.5], "cap": [0.6]}), tmp_path, "c")
    monkeypatch.chdir(tmp_path)  # without a folder `results`
    app(
        [verb, "--from", "toy.csv", "--metric", "mAP", "--out", "made"],
        standalone_mode=False,
    )
    assert (tmp_path / "made").exists()


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
