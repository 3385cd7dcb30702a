"""The style of figures: colours, dashes, one panel's axes and lines. Labels are in labels.py."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ssmlbench.boards.columns import Column
from ssmlbench.boards.report.series import BASELINE, Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, GRID = "#111418", "#8a8f98", "#d9dce1"
HUES = (
    "#0072b2", "#c8500a", "#00805c", "#b04f8a", "#8a6d00", "#6b4bb8", "#a3182a", "#4d6b2f",
)  # fmt: skip
"""Okabe and Ito's colours and three more, each with a contrast of 3 : 1 and more on white.

More than a figure names methods (series.FEW), so that no two of them share a colour.
"""
MARKERS = ("s", "^", "D", "v", "P", "X")
"""A circle is the baseline's alone, and that of methods without a name."""
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
SHAPES = tuple(itertools.product(MARKERS, DASHES))
SETTINGS: dict[Any, Any] = {
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.dpi": 72,
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "ssmlbench",
    "text.color": INK,
    "text.parse_math": False,  # a name may hold a dollar sign
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
}
LEAST_SPAN = 0.01
"""The least span of a metric's axis: rounding is not drawn as a difference, and ticks stay short."""
WIDTH = 330.0
"""Points; about the width of a phone."""


@dataclass(frozen=True)
class Style:
    """The style of one method in figures."""

    colour: str
    marker: str
    dash: Any


def numbered_style(number: int) -> Style:
    """A style for each number; two numbers share a colour, a marker and a dash only after many others."""
    return Style(
        HUES[number % len(HUES)],
        MARKERS[number % len(MARKERS)],
        DASHES[(number + number // len(HUES)) % len(DASHES)],
    )


PLAIN = Style(MUTED, "o", DASHES[0])
"""The style of a method that a figure does not name."""


class Styles:
    """A style for every method that a figure names, the same in all figures of a report."""

    def __init__(self, names: Sequence[str]) -> None:
        others = [name for name in dict.fromkeys(names) if name != BASELINE]
        self._index = {name: i for i, name in enumerate(others)}

    def knows(self, names: Sequence[str]) -> bool:
        """Whether it has a style for each name."""
        return all(name == BASELINE or name in self._index for name in names)

    def of(self, name: str) -> Style:
        """Return a method's style; the baseline always has its own."""
        if name == BASELINE:
            return Style(INK, "o", DASHES[1])
        i = self._index.get(name, 0)
        return numbered_style(i)

    def among(self, names: Sequence[str]) -> dict[str, Style]:
        """Return the styles for one figure: a method whose colour or shape is taken gets a free one.

        A shape is a marker with a dash: all that is left of a style in grey.
        """
        styles: dict[str, Style] = {}
        for name in sorted(names, key=lambda name: self._index.get(name, 0)):
            style = self.of(name)
            colours = {each.colour for each in styles.values()}
            shapes = {(each.marker, each.dash) for each in styles.values()}
            if style.colour in colours:
                free = next((hue for hue in HUES if hue not in colours), style.colour)
                style = replace(style, colour=free)
            if (style.marker, style.dash) in shapes:
                taken = (style.marker, style.dash)
                free_shapes = (shape for shape in SHAPES if shape not in shapes)
                marker, dash = next(free_shapes, taken)
                style = replace(style, marker=marker, dash=dash)
            styles[name] = style
        return styles


_shared: ContextVar[Styles | None] = ContextVar("_shared", default=None)
"""The styles of all figures that are drawn now, if they share them."""


@contextmanager
def drawn_with(styles: Styles) -> Iterator[None]:
    """Draw figures in which a method looks the same, whatever other methods each of them shows."""
    before = _shared.set(styles)
    try:
        yield
    finally:
        _shared.reset(before)


def styles_for(names: Sequence[str]) -> dict[str, Style]:
    """The style of each name in one figure: the shared ones if they have all the names."""
    shared = _shared.get()
    styles = shared if shared is not None and shared.knows(names) else Styles(names)
    return styles.among(names)


_ours = ContextVar("_ours", default=False)
"""Whether our settings are on already."""


@contextmanager
def settings() -> Iterator[None]:
    """Draw with our settings alone: a user's matplotlibrc must not change the bytes.

    Inside itself it does nothing: a page of many figures sets them once.
    """
    import matplotlib

    if _ours.get():
        yield
        return
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        before = _ours.set(True)
        try:
            yield
        finally:
            _ours.reset(before)


def panel(height: float, left: float, right: float, bottom: float = 36, top: float = 18) -> Axes:
    """Return axes with margins in points, in a new figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / 72, height / 72))
    return figure.add_axes(
        (
            left / WIDTH,
            bottom / height,
            (WIDTH - left - right) / WIDTH,
            (height - bottom - top) / height,
        )
    )


def name_y_axis(axes: Axes, metric: Column) -> None:
    """Write the metric above its axis, with an arrow in the direction that is better."""
    text = f"{metric.title} {'↑' if metric.higher_is_better else '↓'}"
    axes.annotate(text, (0, 1), (-6, 5), xycoords="axes fraction", textcoords="offset points")


def few_ticks(axis: Any) -> None:
    """At most six ticks, at round numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))


def plain_numbers(axis: Any) -> None:
    """Write the axis' numbers short (0.05, 300, 2e+04), with the digits that tell the ticks apart."""
    from matplotlib.ticker import Formatter, NullFormatter

    class PlainNumbers(Formatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:.4g}"

        def format_ticks(self, values: Sequence[float]) -> list[str]:
            return tick_texts(values)

    axis.set_major_formatter(PlainNumbers())
    axis.set_minor_formatter(NullFormatter())


def tick_texts(values: Sequence[float]) -> list[str]:
    """The numbers with at least four significant digits, and with more where two would read the same."""
    for digits in range(4, 17):
        texts = [f"{value:.{digits}g}" for value in values]
        if len(set(texts)) == len(set(values)):
            break
    return texts


def log_ticks(axis: Any, low: float, high: float) -> None:
    """Set ticks of a logarithmic axis, several to a decade where it spans few."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

    steps = (1,) if high / low > 1000 else (1, 3) if high / low > 12 else (1, 2, 3, 5, 7)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks = [s * 10.0**e for e in range(first, last + 1) for s in steps]
    inside = [t for t in ticks if low <= t <= high]
    if len(inside) < 2:  # one number says nothing of an axis' scale
        inside = [t for t in MaxNLocator(4).tick_values(low, high) if low <= t <= high]
    axis.set_major_locator(FixedLocator(inside or [low, high]))
    axis.set_minor_locator(NullLocator())
    plain_numbers(axis)


def draw_lines(axes: Axes, lines: Sequence[Line], styles: Mapping[str, Style]) -> None:
    """Draw the lines that have a style with their band, the others thin and grey behind them."""
    for line in lines:
        if line.name not in styles:
            axes.plot(line.x, line.mean, color=MUTED, linewidth=0.7, alpha=0.55, zorder=1)
    for line in lines:
        if line.name in styles:
            draw_line(axes, line, styles[line.name])


def draw_line(axes: Axes, line: Line, style: Style) -> None:
    """Draw the means with markers, and a band of ± one standard deviation."""
    low = [m - s for m, s in zip(line.mean, line.std, strict=True)]
    high = [m + s for m, s in zip(line.mean, line.std, strict=True)]
    if any(line.std):
        axes.fill_between(line.x, low, high, color=style.colour, alpha=0.16, linewidth=0)
    axes.plot(
        line.x,
        line.mean,
        color=style.colour,
        linewidth=1.5,
        linestyle=style.dash,
        marker=style.marker,
        markersize=4,
        markevery=max(1, math.ceil(len(line.x) / 8)),
        zorder=3,
        clip_on=False,  # a marker on the edge of the axes is drawn whole
    )


def fit_y_axis(axes: Axes, lines: Sequence[Line], styles: Mapping[str, Style]) -> None:
    """Fit the y-axis to the lines that have a style, and write how many others lie outside."""
    named = [line for line in lines if line.name in styles]
    low = min(m - s for line in named for m, s in zip(line.mean, line.std, strict=True))
    high = max(m + s for line in named for m, s in zip(line.mean, line.std, strict=True))
    room = max(0.2 * (high - low), (LEAST_SPAN - (high - low)) / 2)
    # no metric lies outside [0, 1]: the axis does not either, unless a value touches its end
    low, high = max(low - room, 0.0), min(high + room, 1.0)
    axes.set_ylim(low, high)
    for text, y, align, count in (
        ("above", 1.0, "top", sum(min(line.mean) > high for line in lines)),
        ("below", 0.0, "bottom", sum(max(line.mean) < low for line in lines)),
    ):
        if count:
            position: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
            offset = (-2, -2 if align == "top" else 2)
            words = f"{count} more {text}"
            axes.annotate(words, (1, y), offset, ha="right", va=align, fontsize=8, **position)
