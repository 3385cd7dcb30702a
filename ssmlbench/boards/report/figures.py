"""Draws series with matplotlib, as PDF, PNG or SVG with the same bytes each time.

A figure is one small panel, about as wide as a phone. series.py and histories.py decide which numbers are
shown.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from ssmlbench.boards.analyses.drawing import explained
from ssmlbench.boards.report.analyses import AnalysisFigure
from ssmlbench.boards.report.histories import Curves, PseudoLabels
from ssmlbench.boards.report.labels import (
    LABEL_LENGTH,
    LETTER_WIDTH,
    end_labels,
    label_room,
    place_labels,
)
from ssmlbench.boards.report.series import (
    BASELINE,
    CostQuality,
    CriticalDifference,
    Dots,
    Line,
    OverLevels,
    Series,
)
from ssmlbench.boards.report.style import (
    HUES,
    INK,
    MUTED,
    PLAIN,
    WIDTH,
    Styles,
    draw_line,
    draw_lines,
    drawn_with,
    few_ticks,
    fit_y_axis,
    log_ticks,
    name_y_axis,
    numbered_style,
    panel,
    plain_numbers,
    settings,
)
from ssmlbench.boards.report.text import short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def render(series: Series, styles: Styles, kind: str) -> bytes:
    """Return the figure as the bytes of a `pdf`, `png` or `svg` file."""
    metadata: dict[str, dict[str, None]] = {
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
        "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
        "png": {"Software": None},
    }
    with settings():
        figure = cast("Figure", DRAW[type(series)](series, styles).figure)
        out = io.BytesIO()
        figure.savefig(
            out,
            format=kind,
            metadata=metadata[kind],
            dpi=220,
            transparent=kind == "svg",
            # Figures of analyses may have names of any length beside a title: the page grows.
            bbox_inches="tight" if isinstance(series, AnalysisFigure) else None,
        )
    return out.getvalue()


def _over_levels(series: OverLevels, styles: Styles) -> Axes:
    labelled = [each for each in series.lines if each.name in series.named]
    chosen = styles.among([each.name for each in labelled])
    axes = panel(height=250, left=44, right=label_room(list(chosen)))
    draw_lines(axes, series.lines, chosen)
    fit_y_axis(axes, series.lines, chosen)
    levels = sorted({x for each in series.lines for x in each.x})
    if levels[0] > 0:
        axes.set_xscale("log")
    axes.set_xticks(levels[:: math.ceil(len(levels) / 6)])
    axes.minorticks_off()
    plain_numbers(axes.xaxis)
    few_ticks(axes.yaxis)
    plain_numbers(axes.yaxis)
    axes.grid(axis="y")
    axes.set_xlabel(series.axis)
    name_y_axis(axes, series.metric)
    end_labels(axes, labelled, chosen)
    return axes


def _dots(series: Dots, styles: Styles) -> Axes:
    shown = short_names([dot.name for dot in series.dots], 20)
    left = 14 + 6.0 * max(len(text) for text in shown.values())
    axes = panel(height=46 + 14.5 * len(series.dots), left=left, right=10)
    rows = range(len(series.dots))
    for y, dot in zip(rows, series.dots, strict=True):
        colour = INK if dot.name == BASELINE else HUES[0]
        axes.plot([dot.mean - dot.std, dot.mean + dot.std], [y, y], color=colour, linewidth=1.2)
        axes.plot(
            dot.values,
            [y] * len(dot.values),
            "o",
            mfc="none",
            mec=colour,
            ms=3.2,
            mew=0.6,
            alpha=0.7,
        )
        axes.plot([dot.mean], [y], "s" if dot.name == BASELINE else "o", color=colour, ms=5)
        if dot.name == BASELINE:
            axes.axvline(dot.mean, color=MUTED, linewidth=0.8, linestyle=(0, (3, 2)), zorder=0)
    axes.set_yticks(list(rows), [shown[dot.name] for dot in series.dots])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(series.dots) - 0.4, -0.6)
    few_ticks(axes.xaxis)
    left_end, right_end = axes.get_xlim()
    axes.set_xlim(max(left_end, 0.0), min(right_end, 1.0))  # no metric lies outside
    plain_numbers(axes.xaxis)
    axes.grid(axis="x")
    axes.grid(axis="y", linewidth=0.3)
    axes.set_axisbelow(True)
    axes.set_xlabel(f"{series.metric.title} {'↑' if series.metric.higher_is_better else '↓'}")
    return axes


def _cost_quality(series: CostQuality, styles: Styles) -> Axes:
    axes = panel(height=310, left=40, right=14)
    costs = [point.cost for point in series.points]
    at = {point.name: point for point in series.points}
    front = [at[name] for name in series.front]
    axes.plot(
        [p.cost for p in front], [p.quality for p in front],
        color=MUTED, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1,
    )  # fmt: skip
    bold = {*series.front, *series.named}
    chosen = styles.among(sorted(bold & {*at}))
    for point in series.points:
        style = chosen.get(point.name, PLAIN)
        axes.plot(
            [point.cost], [point.quality], style.marker, color=style.colour,
            ms=3.5 if style is PLAIN else 5.5, zorder=2 if style is PLAIN else 3,
        )  # fmt: skip
    if min(costs) > 0:
        axes.set_xscale("log")
        low, high = min(costs) / 1.25, max(costs) * 1.6
        axes.set_xlim(low, high)
        log_ticks(axes.xaxis, low, high)
    plain_numbers(axes.xaxis)
    few_ticks(axes.yaxis)
    plain_numbers(axes.yaxis)
    axes.margins(y=0.09)
    axes.autoscale_view()
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(bottom, 0.0), min(top, 1.0))
    axes.grid()
    axes.set_axisbelow(True)
    axes.set_xlabel(f"{series.cost.title} ↓")
    name_y_axis(axes, series.quality)
    shown = short_names([point.name for point in series.points], LABEL_LENGTH)
    ordered = sorted(series.points, key=lambda p: (p.name not in bold, p.name))
    place_labels(axes, [(p.cost, p.quality, shown[p.name], p.name in bold) for p in ordered])
    return axes


def _mark_warm_up(axes: Axes, warm_up: int, last: float) -> None:
    if 0 < warm_up < last:
        axes.axvline(warm_up + 0.5, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)), zorder=0)
        axes.annotate(
            "warm-up", (warm_up + 0.5, 1), (0, 2), xycoords=("data", "axes fraction"),
            textcoords="offset points", ha="center", va="bottom", fontsize=8,
        )  # fmt: skip


def _epochs(axes: Axes, warm_up: int, shown: Sequence[Line]) -> None:
    from matplotlib.ticker import MaxNLocator

    last = max(each.x[-1] for each in shown)
    axes.set_xlim(0, last)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.grid(axis="y")
    axes.set_xlabel("epoch")
    _mark_warm_up(axes, warm_up, last)


def _curves(series: Curves, styles: Styles) -> Axes:
    names = [each.name for each in series.lines]
    axes = panel(height=190, left=58, right=label_room(names))
    chosen = {each.name: numbered_style(i) for i, each in enumerate(series.lines)}
    for each in series.lines:
        draw_line(axes, each, chosen[each.name])
    values = [value for each in series.lines for value in each.mean]
    if series.what == "losses" and min(values) > 0 and max(values) > 20 * min(values):
        axes.set_yscale("log")
        log_ticks(axes.yaxis, min(values) / 1.2, max(values) * 1.2)
    else:
        few_ticks(axes.yaxis)
    plain_numbers(axes.yaxis)
    axes.set_ylabel(f"{short_names([series.method], LABEL_LENGTH)[series.method]}: {series.what}")
    _epochs(axes, series.warm_up, series.lines)
    end_labels(axes, series.lines, chosen)
    return axes


def _pseudo_labels(series: PseudoLabels, styles: Styles) -> Axes:
    labelled = [each for each in series.lines if each.name in series.named]
    chosen = styles.among([each.name for each in labelled])
    axes = panel(height=230, left=54, right=label_room(list(chosen)))
    draw_lines(axes, series.lines, chosen)
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 0.0), min(high, 1.0))  # a band may leave [0, 1], a share cannot
    axes.set_ylabel(series.column.removeprefix("pseudo_"))
    few_ticks(axes.yaxis)
    plain_numbers(axes.yaxis)
    _epochs(axes, series.warm_up, series.lines)
    end_labels(axes, labelled, chosen)
    return axes


def _critical_difference(series: CriticalDifference, styles: Styles) -> Axes:
    """Demšar's diagram: methods on an axis of average ranks, bars over those that do not differ.

    scikit_posthocs' diagram is not used: it has no bar for the difference and cuts names in a narrow panel.
    """
    count = len(series.names)
    half = math.ceil(count / 2)
    shown = short_names(series.names, LABEL_LENGTH)
    side = 30 + LETTER_WIDTH * max(map(len, shown.values()))
    top, below = 44.0, 54.0 + 10 * len(series.cliques)
    axes = panel(below + 14 + 13.5 * half, left=0, right=0, bottom=0, top=0)
    axes.set_axis_off()
    axes.set_xlim(0, WIDTH)
    axes.set_ylim(below + 14 + 13.5 * half, 0)

    def x(rank: float) -> float:
        return side + (rank - 1) / (count - 1) * (WIDTH - 2 * side)

    small: dict[str, Any] = {"fontsize": 8.5}
    axes.plot([x(1), x(count)], [top, top], color=INK, linewidth=1)
    for tick in range(1, count + 1, math.ceil(count / 8)):
        axes.plot([x(tick)] * 2, [top - 4, top], color=INK, linewidth=1)
        axes.text(x(tick), top - 6, str(tick), ha="center", va="bottom", **small)
    ends = [x(1), x(min(1 + series.difference, count))]
    axes.plot(ends, [14, 14], color=INK, linewidth=1.4, marker="|", markersize=6)
    axes.text(x(1), 9, f"CD = {series.difference:.2f}", ha="left", va="bottom", **small)
    axes.text(WIDTH - 4, 9, series.metric.title, ha="right", va="bottom", **small)
    chosen = styles.among(series.named)
    for i, (name, rank) in enumerate(zip(series.names, series.ranks, strict=True)):
        style = chosen.get(name, PLAIN)
        on_left = i < half
        y = below + 8 + 13.5 * (i if on_left else count - 1 - i)
        edge = side - 4 if on_left else WIDTH - side + 4
        axes.plot([x(rank), x(rank), edge], [top, y, y], color=style.colour, linewidth=0.9)
        axes.plot([x(rank)], [top], style.marker, color=style.colour, ms=4, zorder=3)
        if on_left:
            axes.text(edge - 3, y, f"{shown[name]} {rank:.1f}", ha="right", va="center", **small)
        else:
            axes.text(edge + 3, y, f"{rank:.1f} {shown[name]}", ha="left", va="center", **small)
    for i, (first, last) in enumerate(series.cliques):
        ends = [x(series.ranks[first]) - 3, x(series.ranks[last]) + 3]
        y = top + 9 + 10.0 * i
        axes.plot(ends, [y, y], color=INK, linewidth=3, solid_capstyle="round", zorder=4)
    return axes


def _analysis(series: AnalysisFigure, styles: Styles) -> Axes:
    with drawn_with(styles):
        return explained(series.draw()).axes[0]


DRAW: dict[type, Callable[[Any, Styles], Axes]] = {
    OverLevels: _over_levels,
    Dots: _dots,
    CostQuality: _cost_quality,
    Curves: _curves,
    PseudoLabels: _pseudo_labels,
    CriticalDifference: _critical_difference,
    AnalysisFigure: _analysis,
}
