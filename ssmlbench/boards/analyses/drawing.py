"""Figures of analyses: panels below each other, as wide as a phone; lines differ without colour."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from ssmlbench.boards.report.style import (
    HUES,
    WIDTH,
    Style,
    few_ticks,
    plain_numbers,
    settings,
)
from ssmlbench.boards.report.text import short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE_WIDTH, NAME_WIDTH = 44, 18
"""Characters that fit a panel: of a line of its title, and of a name in a legend of two columns."""

EPOCHS = "finished epochs"
"""The name of an x-axis that counts epochs."""

METADATA: dict[str, dict[str, None]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
    "png": {"Software": None},
}


def save(draw: Callable[[], Figure], kind: str) -> bytes:
    """The figure as the bytes of a `pdf`, `png` or `svg` file; the same bytes each time."""
    with settings():
        out = io.BytesIO()
        explained(draw()).savefig(
            out,
            format=kind,
            metadata=METADATA[kind],
            dpi=220,
            transparent=kind == "svg",
            bbox_inches="tight",
            pad_inches=0.06,
        )
    return out.getvalue()


def explained(figure: Figure) -> Figure:
    """The figure with what its marks mean: over its legend, or below its last panel."""
    texts = list(dict.fromkeys(text for axes in figure.axes for text in _meanings(axes)))
    if texts and figure.legends:
        figure.legends[0].set_title("\n".join(texts))
        figure.legends[0].get_title().set_fontsize(8)
    elif texts:
        last = [axes for axes in figure.axes if axes.get_xlabel()][-1]
        last.set_xlabel("\n".join([last.get_xlabel(), *texts]))
    return figure


BAND = "_mean over seeds, band: ± one standard deviation"
DOTS = "_filled: mean over seeds, hollow: each seed"
INTERVALS = "_bar: 95 % t interval over seeds"
"""What marks mean, as their labels; a legend leaves out a label that starts like this."""


def _meanings(axes: Axes) -> list[str]:
    labels = {artist.get_label() for artist in axes.get_children()}
    return [text.removeprefix("_") for text in (BAND, DOTS, INTERVALS) if text in labels]


def panels(
    count: int, height: float = 190, ratios: Sequence[float] | None = None
) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels below each other, each `height` points high, or as `ratios` say."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / 72, count * height / 72), layout="constrained")
    axes = figure.subplots(count, 1, squeeze=False, height_ratios=ratios)[:, 0]
    return figure, list(axes)


def finish(axes: Axes, title: str, x: str, y: str, named_rows: bool = False) -> None:
    """Title, axes' names and a light grid. named_rows: the y-axis has names, not numbers."""
    from matplotlib.ticker import ScalarFormatter

    axes.set_title(wrapped(title), loc="left", fontsize=9.5, fontweight="bold")
    axes.set_xlabel(x)
    if x == EPOCHS:
        whole_epochs(axes)
    axes.set_ylabel(y)
    axes.grid(axis="x" if named_rows else "y")
    axes.set_axisbelow(True)
    if named_rows:
        few_ticks(axes.xaxis)
    else:
        plain_numbers(axes.yaxis)
    if isinstance(axes.xaxis.get_major_formatter(), ScalarFormatter):  # no names, no log scale
        plain_numbers(axes.xaxis)


def wrapped(title: str) -> str:
    """The title in lines that fit a panel; the place of its runs, after the last comma, is not broken.

    Nor is "π = 0.05": a break inside a number's name is hard to read.
    """
    if len(title) <= TITLE_WIDTH:
        return title
    what, comma, place = title.rpartition(", ")
    parts = [f"{what},", place] if comma else [title]
    lines = [textwrap.fill(part.replace(" = ", "\u00a0=\u00a0"), TITLE_WIDTH) for part in parts]
    return "\n".join(lines)


def empty_panel(axes: Axes, reason: str) -> None:
    """Write why nothing is drawn in a panel."""
    axes.text(0.5, 0.5, reason, ha="center", va="center", fontsize=8.5, transform=axes.transAxes)


def remark(axes: Axes, text: str) -> None:
    """Write in a panel's corner why it lacks a line."""
    at: dict[str, Any] = {"ha": "right", "va": "top", "transform": axes.transAxes}
    axes.text(1, 0.98, text, fontsize=7.5, **at)


def whole_epochs(axes: Axes) -> None:
    """Ticks of an x-axis of epochs: whole numbers only, also where there is a single one."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    axes.margins(x=0.1)


def legend(*axes: Axes) -> None:
    """The names of all lines of the panels, once each, below the figure; long ones below each other."""
    handle_of: dict[str, Any] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        for label, handle in zip(labels, handles, strict=True):
            handle_of.setdefault(label, handle)
    columns = 1 if any(len(name) > NAME_WIDTH for name in handle_of) else 2
    shown = short_names(list(handle_of), NAME_WIDTH if columns > 1 else 2 * NAME_WIDTH)
    cast("Figure", axes[0].figure).legend(
        list(handle_of.values()),
        [shown[label] for label in handle_of],
        loc="outside lower center",
        ncols=min(columns, max(len(handle_of), 1)),
        frameon=False,
        fontsize=8.5,
        handlelength=3.2,
    )


def line(
    axes: Axes,
    x: ArrayLike,
    values: Sequence[ArrayLike],
    style: Style,
    label: str,
    **more: Any,
) -> None:
    """The mean of several curves (one for each seed) with a band of ± one standard deviation."""
    stacked = np.asarray([np.asarray(v, dtype=float) for v in values])
    at = np.asarray(x, dtype=float)
    mean = stacked.mean(axis=0)
    axes.plot(
        at,
        mean,
        color=style.colour,
        linestyle=style.dash,
        marker=style.marker,
        markersize=3.5,
        linewidth=1.4,
        markevery=max(1, len(at) // 8),
        label=label,
        **more,
    )
    if len(stacked) > 1:
        std = stacked.std(axis=0, ddof=1)
        low, high = mean - std, mean + std
        axes.fill_between(at, low, high, color=style.colour, alpha=0.15, linewidth=0, label=BAND)


def common_x(curves: Sequence[tuple[ArrayLike, ArrayLike]]) -> tuple[Any, list[Any]]:
    """The places that all curves have, and each curve's values there."""
    shared = set.intersection(*({float(x) for x in np.atleast_1d(xs)} for xs, _ in curves))
    at = np.asarray(sorted(shared))
    values = []
    for xs, ys in curves:
        by_place = {float(x): y for x, y in zip(np.atleast_1d(xs), np.atleast_1d(ys), strict=True)}
        values.append(np.asarray([by_place[place] for place in at], dtype=float))
    return at, values


def dot_rows(axes: Axes, rows: Mapping[str, Sequence[float]]) -> None:
    """One row for each name: each value hollow, their mean filled."""
    for y, values in enumerate(rows.values()):
        finite = [value for value in values if np.isfinite(value)]
        meaning = DOTS if len(finite) > 1 else None  # one seed: nothing to explain
        axes.plot(
            finite, [y] * len(finite), "o", mfc="none", mec=HUES[0], ms=3.5, mew=0.7, label=meaning
        )
        if finite:
            axes.plot([float(np.mean(finite))], [y], "o", color=HUES[0], ms=5.5)
    shown = short_names(list(rows), 30)
    axes.set_yticks(range(len(rows)), [shown[name] for name in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
