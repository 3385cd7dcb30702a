"""The style of the report's figures: names, labels, colours, ticks and axes."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from ssmlbench.boards.analyses.drawing import (
    EPOCHS,
    dot_rows,
    explained,
    finish,
    legend,
    line,
    panels,
    wrapped,
)
from ssmlbench.boards.query import Query
from ssmlbench.boards.render.slugs import slugs
from ssmlbench.boards.report import sections as sections_module
from ssmlbench.boards.report.analyses import AnalysisFigure, AnalysisSection
from ssmlbench.boards.report.figures import DRAW, render
from ssmlbench.boards.report.histories import (
    PseudoLabels,
)
from ssmlbench.boards.report.labels import spread
from ssmlbench.boards.report.sections import report_sections
from ssmlbench.boards.report.series import (
    Line,
    cost_quality,
    dots,
    named,
    over_levels,
)
from ssmlbench.boards.report.style import (
    HUES,
    Styles,
    fit_y_axis,
    log_ticks,
    numbered_style,
    panel,
    settings,
    styles_for,
    tick_texts,
)
from ssmlbench.boards.report.text import clean, short_names
from ssmlbench.protocol.metrics import METRICS
from tests.boards.report.conftest import QUERY
from tests.conftest import ROOT
from tests.support.board_runs import grid, one_board

MAP = METRICS["map"]
ASSETS = ROOT / "ssmlbench" / "boards" / "report" / "assets"


def test_names_are_cut_and_stay_apart() -> None:
    shown = short_names(["abcdefgh", "abcdefgx", "short"], 6)
    assert shown["short"] == "short"
    assert len(set(shown.values())) == 3
    assert all(len(text) <= 6 for text in shown.values())
    assert clean("a\x00b\ud800c\u202e") == "a\ufffdb\ufffdc\ufffd"
    assert slugs(["A/B π", "a b π", "../.."]) == ["a-b-pi", "a-b-pi-2", "figure"]


def test_labels_move_apart_and_no_further() -> None:
    assert spread([0, 100], 10, 0, 200) == [0, 100]
    assert spread([50, 50], 10, 0, 200) == [45, 55]
    assert spread([52, 50, 51], 10, 0, 200) == [61, 41, 51]
    assert spread([199, 200], 10, 0, 200) == [190, 200]


def test_methods_in_one_figure_have_colours_of_their_own() -> None:
    styles = Styles([*"abcdefgh"])
    assert len({styles.of(name).colour for name in "abcdefgh"}) == 8
    many = Styles([f"m{i}" for i in range(30)])
    assert many.of("m0").colour == many.of("m8").colour
    chosen = many.among(["m0", "m8", "bce"])
    assert len({style.colour for style in chosen.values()}) == 3
    assert len({(style.marker, str(style.dash)) for style in chosen.values()}) == 3


@pytest.mark.parametrize("count", range(1, 30))
def test_no_two_methods_that_a_figure_names_share_a_colour(count: int) -> None:
    names = [f"m{i}" for i in range(count - 1)] + ["bce"]
    shown = Styles(names).among(named(names))
    assert len({style.colour for style in shown.values()}) == len(shown)


def test_fifty_lines_differ_in_colour_marker_or_dash() -> None:
    styles = [numbered_style(i) for i in range(50)]
    assert len({(s.colour, s.marker, str(s.dash)) for s in styles}) == 50
    assert all(a.colour != b.colour for a, b in itertools.pairwise(styles))


def test_methods_of_one_figure_differ_in_grey_whatever_others_a_report_has() -> None:
    everywhere = Styles([f"m{i}" for i in range(40)])
    for chosen in itertools.combinations([f"m{i}" for i in (0, 6, 12, 18, 24, 30, 36)], 5):
        shown = everywhere.among([*chosen, "bce"])
        assert len({(style.marker, style.dash) for style in shown.values()}) == 6


def test_a_method_looks_the_same_in_analyses_as_in_the_other_figures() -> None:
    names = ["cap", "bce", "bbam", "mine", "softmatch", "freematch", "role"]
    assert styles_for(names) == Styles(names).among(names)
    assert len({style.colour for style in styles_for(names).values()}) == len(names)
    report = Styles(names)
    seen = {}

    def draw() -> Any:
        seen.update(styles_for(["bbam", "cap"]))  # another order, and not all of them
        seen.update(styles_for(["scale=10", "scale=20"]))  # what the report's styles do not know
        return panels(1)[0]

    render(AnalysisFigure("here", "title", "text", draw), report, "svg")
    assert [seen[name] for name in ("bbam", "cap")] == [report.of("bbam"), report.of("cap")]
    assert seen["scale=10"] != seen["scale=20"]


def test_an_axis_does_not_magnify_rounding() -> None:
    axes = panel(height=200, left=44, right=40)
    flat = Line("cap", (1.0, 2.0), (0.99832, 0.99832), (1e-5, 1e-5))
    fit_y_axis(axes, [flat], {"cap": numbered_style(0)})
    low, high = axes.get_ylim()
    assert low < 0.99832 < high
    assert 0.005 < high - low <= 0.0101


def test_figures_of_an_analysis_with_one_in_each_place_stand_side_by_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def figure(where: str) -> AnalysisFigure:
        return AnalysisFigure(where, f"{where} · labels", "alt", lambda: panels(1)[0])

    found = [
        AnalysisSection("labels", "Per label.", [figure("a"), figure("b")], []),
        AnalysisSection("vdfd", "Per epoch.", [figure("a"), figure("a"), figure("b")], []),
    ]
    monkeypatch.setattr(sections_module, "analysis_sections", lambda boards, query: found)
    sections = report_sections([], Query(), ["analyses"])
    shown = [[(group.heading, len(group.series)) for group in s.groups] for s in sections]
    assert shown == [[("", 2)], [("a", 2), ("b", 1)]]


def test_no_method_has_the_marker_of_the_baseline() -> None:
    names = ["bce", *(f"m{i}" for i in range(20))]
    shown = Styles(names).among(names)
    assert shown["bce"].marker not in {shown[name].marker for name in names[1:]}


def test_a_figure_of_an_analysis_says_what_its_bands_and_dots_mean() -> None:
    figure, (first, second) = panels(2)
    style = numbered_style(0)
    line(first, [1, 2], [[0.1, 0.2], [0.2, 0.3]], style, "cap")
    finish(first, "a title", EPOCHS, "precision")
    dot_rows(second, {"cap": [0.1, 0.2]})
    finish(second, "another", "VCA", "", named_rows=True)
    assert explained(figure).axes[1].get_xlabel().splitlines() == [
        "VCA",
        "mean over seeds, band: ± one standard deviation",
        "filled: mean over seeds, hollow: each seed",
    ]
    legend(first)
    assert len(figure.legends[0].get_texts()) == 1
    assert "band" in explained(figure).legends[0].get_title().get_text()
    alone, (axes,) = panels(1)
    line(axes, [1, 2], [[0.1, 0.2]], style, "cap")
    dot_rows(axes, {"cap": [0.1]})
    axes.set_xlabel("epoch")
    assert explained(alone).axes[0].get_xlabel() == "epoch"  # one seed


@pytest.mark.parametrize(
    ("low", "high"),
    [(1, 2000), (0.9, 9), (0.03, 0.5), (480, 520), (4.8, 6.2), (90, 110), (3, 3.001)],
)
def test_a_logarithmic_axis_has_two_ticks_or_more(low: float, high: float) -> None:
    _, (axes,) = panels(1)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    log_ticks(axes.xaxis, low, high)
    inside = [tick for tick in axes.get_xticks() if low <= tick <= high]
    assert 2 <= len(inside) <= 8
    assert len(set(tick_texts(inside))) == len(inside)


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("Recall, toy · semi π = 0.2", "Recall, toy · semi π = 0.2"),
        (
            "Precision of pseudo-labels, emotions · semi π = 0.2",
            "Precision of pseudo-labels,\nemotions · semi π = 0.2",
        ),
        ("word " * 12, "word word word word word word word word word\nword word word"),
    ],
)
def test_a_title_breaks_before_the_place_of_its_runs(title: str, shown: str) -> None:
    assert wrapped(title).replace("\u00a0", " ") == shown


@pytest.mark.parametrize("epochs", [[1], [1, 2], [3, 40]])
def test_epochs_of_analyses_have_whole_ticks(epochs: list[int]) -> None:
    _, (axes,) = panels(1)
    axes.plot(epochs, [0.5] * len(epochs), "o")
    finish(axes, "a title", EPOCHS, "precision")
    ticks = axes.get_xticks()
    assert all(tick == round(tick) for tick in ticks)
    assert any(axes.get_xlim()[0] <= tick <= axes.get_xlim()[1] for tick in ticks)


def test_ticks_never_repeat_a_number() -> None:
    assert tick_texts([0.05, 0.1, 0.15]) == ["0.05", "0.1", "0.15"]
    assert tick_texts([0.71232, 0.71234, 0.71236]) == ["0.71232", "0.71234", "0.71236"]
    assert tick_texts([1e6, 1e6 + 1, 1e6 + 2]) == ["1000000", "1000001", "1000002"]
    assert tick_texts([20000.0]) == ["2e+04"]


@pytest.mark.parametrize("values", [(0.97, 1.0), (0.0, 0.01), (1.0, 1.0), (0.71232, 0.71236)])
def test_axes_of_shares_stay_within_their_bounds(
    tmp_path: Path, values: tuple[float, float]
) -> None:
    """Metrics and shares lie in [0, 1]: no axis goes on to 1.04, whatever bands say."""
    low, high = values
    line = Line("cap", (1.0, 2.0), (low, high), (0.05, 0.05))
    runs = grid(tmp_path, {"bce": [low, high], "cap": [high, high]}, pi=0.1)
    runs += grid(tmp_path, {"bce": [low, low], "cap": [high, low]}, pi=0.2)
    board = one_board(runs)
    only = one_board([run for run in runs if run.spec.pi == 0.1])
    drawn = [
        (PseudoLabels("w", "pseudo_trusted", (line,), ("cap",), 1), "y"),
        (over_levels(board, MAP), "y"),
        (dots(only, MAP, "0.1"), "x"),
        (cost_quality(only, QUERY, sections_module.COSTS["seconds_per_epoch"], "0.1"), "y"),
    ]
    with settings():
        for series, side in drawn:
            axes = DRAW[type(series)](series, Styles(["cap", "bce"]))
            start, end = axes.get_ylim() if side == "y" else axes.get_xlim()
            assert (min(start, end), max(start, end)) >= (0.0, 0.0)
            assert max(start, end) <= 1.0
            assert start != end
            axes.figure.canvas.draw()
            ticks = [t.get_text() for t in getattr(axes, f"get_{side}ticklabels")()]
            shown = [text for text in ticks if text]
            assert len(set(shown)) == len(shown) <= 8


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_and_lines_stand_out_in_both_themes() -> None:
    css = (ASSETS / "page.css").read_text()
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#\w{6});", part)) for part in css.split("@media")[:2]
    )
    numbers = range(1, len(HUES) + 1)
    assert [light[f"hue-{i}"] for i in numbers] == list(HUES)
    assert len({dark[f"hue-{i}"] for i in numbers}) == len(HUES)
    for theme in (light, dark):
        for name, ratio in {
            **dict.fromkeys(("ink", "soft", "link", "warn"), 4.5),  # text
            **dict.fromkeys(("muted", *(f"hue-{i}" for i in numbers)), 3.0),  # graphics
        }.items():
            for ground in ("paper", "shade"):
                pair = sorted((luminance(theme[name]), luminance(theme[ground])))
                assert (pair[1] + 0.05) / (pair[0] + 0.05) >= ratio, (name, ground)
