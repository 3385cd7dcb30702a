"""How figures look: colours, dashes, one panel's axes, and labels that do not cover each other."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ssmlbench.boards.report.series import BASELINE, Line
from ssmlbench.boards.report.text import short_names
from ssmlbench.protocol.metrics import Metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, GRID = "#111418", "#8a8f98", "#d9dce1"
HUES = ("#0072b2", "#c8500a", "#00805c", "#b04f8a", "#8a6d00")
"""Okabe and Ito's colours, darkened until each has a contrast of 3 : 1 and more on white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
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
WIDTH = 330.0
LABEL_GAP = 11.5
LABEL, LETTER = 17, 5.6
"""Letters of a name in a figure, and a letter's width in points, a little more than the font's."""


@dataclass(frozen=True)
class Style:
    colour: str
    marker: str
    dash: Any


PLAIN = Style(MUTED, "o", DASHES[0])
"""Of a method that a figure does not single out."""


class Styles:
    """A look for every method a figure names, the same in all figures of a page."""

    def __init__(self, names: Sequence[str]):
        others = [name for name in dict.fromkeys(names) if name != BASELINE]
        self._place = {name: i for i, name in enumerate(others)}

    def of(self, name: str) -> Style:
        if name == BASELINE:
            return Style(INK, "o", DASHES[1])
        i = self._place.get(name, 0)
        return Style(HUES[i % 5], MARKERS[i % 7], DASHES[i // 5 % 4])

    def among(self, names: Sequence[str]) -> dict[str, Style]:
        """The looks of the names in one figure: who would share a colour takes one that is free."""
        found: dict[str, Style] = {}
        for name in sorted(names, key=lambda name: self._place.get(name, 0)):
            style = self.of(name)
            used = {each.colour for each in found.values()}
            free = [hue for hue in HUES if hue not in used]
            found[name] = replace(style, colour=free[0]) if style.colour in used and free else style
        return found


@contextmanager
def settings() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()  # a user's own matplotlibrc does not change our bytes
        matplotlib.rcParams.update(SETTINGS)
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def panel(height: float, left: float, right: float, bottom: float = 36, top: float = 18) -> Axes:
    """Axes with margins in points, in a figure of their own."""
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


def name_height(axes: Axes, metric: Metric) -> None:
    """The metric over its axis, where it needs no room at the side, with the way that is better."""
    text = f"{metric.title} {'↑' if metric.higher_is_better else '↓'}"
    axes.annotate(text, (0, 1), (-6, 5), xycoords="axes fraction", textcoords="offset points")


def plain_numbers(axis: Any) -> None:
    """Numbers as one says them: 0.05, 300, 2e+04."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.4g}"))
    axis.set_minor_formatter(NullFormatter())


def log_ticks(axis: Any, low: float, high: float) -> None:
    """A logarithmic axis with ticks that can be read also where it spans less than a decade."""
    from matplotlib.ticker import FixedLocator, NullLocator

    steps = (1,) if high / low > 1000 else (1, 3) if high / low > 12 else (1, 2, 3, 5, 7)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks = [s * 10.0**e for e in range(first, last + 1) for s in steps]
    axis.set_major_locator(FixedLocator([t for t in ticks if low <= t <= high] or [low, high]))
    axis.set_minor_locator(NullLocator())
    plain_numbers(axis)


def draw_lines(axes: Axes, lines: Sequence[Line], looks: Mapping[str, Style]) -> None:
    """The lines that have a look with their band, the others thin and grey behind them."""
    for line in lines:
        if line.name not in looks:
            axes.plot(line.x, line.mean, color=MUTED, linewidth=0.7, alpha=0.55, zorder=1)
    for line in lines:
        if line.name in looks:
            draw_line(axes, line, looks[line.name])


def draw_line(axes: Axes, line: Line, style: Style) -> None:
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
    )


def label_room(names: Sequence[str]) -> float:
    """Points that the names take beside a panel."""
    return 24 + LETTER * max(map(len, short_names(names, LABEL).values()))


def end_labels(axes: Axes, lines: Sequence[Line], looks: Mapping[str, Style]) -> None:
    """Each line's name beside its end, moved apart so that none covers another."""
    box = axes.get_window_extent()
    ends = [axes.transData.transform((line.x[-1], line.mean[-1])) for line in lines]
    inside = [min(max(float(y), box.y0), box.y1) for _, y in ends]
    heights = spread(inside, LABEL_GAP, box.y0 - 6, box.y1 + 4)
    shown = short_names([line.name for line in lines], LABEL)
    for line, (x, _), y, height in zip(lines, ends, inside, heights, strict=True):
        axes.annotate(
            shown[line.name],
            xy=(float(x), y),
            xytext=(box.x1 + 18, height),
            xycoords="figure points",
            textcoords="figure points",
            va="center",
            fontsize=9,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": looks[line.name].colour,
                "linewidth": 0.9,
                "relpos": (0, 0.5),
                "shrinkA": 1,
                "shrinkB": 2,
            },
        )


def zoom(axes: Axes, lines: Sequence[Line], looks: Mapping[str, Style]) -> None:
    """The height for the lines that have a look; how many of the others lie outside is written there."""
    named = [line for line in lines if line.name in looks]
    low = min(m - s for line in named for m, s in zip(line.mean, line.std, strict=True))
    high = max(m + s for line in named for m, s in zip(line.mean, line.std, strict=True))
    room = 0.2 * (high - low) or 0.05
    low, high = low - room, high + room
    axes.set_ylim(low, high)
    for text, y, align, count in (
        ("above", 1.0, "top", sum(min(line.mean) > high for line in lines)),
        ("below", 0.0, "bottom", sum(max(line.mean) < low for line in lines)),
    ):
        if count:
            place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
            offset = (-2, -2 if align == "top" else 2)
            words = f"{count} more {text}"
            axes.annotate(words, (1, y), offset, ha="right", va=align, fontsize=8, **place)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions as near to `wanted` as they can be with `gap` between them, in [low, high] if they fit."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    groups: list[list[float]] = []  # [sum of offsets-free positions, count]: pooled neighbours
    for place, i in enumerate(order):
        groups.append([wanted[i] - place * gap, 1.0])
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] > groups[-1][0] / groups[-1][1]:
            last = groups.pop()
            groups[-1] = [groups[-1][0] + last[0], groups[-1][1] + last[1]]
    flat = [total / count for total, count in groups for _ in range(int(count))]
    top = high - (len(wanted) - 1) * gap
    placed = [max(min(base, top), low) if top >= low else low for base in flat]
    found = [0.0] * len(wanted)
    for place, i in enumerate(order):
        found[i] = placed[place] + place * gap
    return found


def place_labels(axes: Axes, points: Sequence[tuple[float, float, str, bool]]) -> None:
    """A label beside each (x, y, text, must) where there is room; without room only a `must` gets one.

    Greedy, in the order given: sixteen places around the point, near before far.
    """
    frame = axes.get_window_extent()
    centres = [tuple(map(float, axes.transData.transform((x, y)))) for x, y, _, _ in points]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in centres]
    for (_, _, text, must), (x, y) in zip(points, centres, strict=True):
        size = 9.0 if must else 8.0
        wide, high = LETTER * size / 9 * len(text), size + 1
        boxes = [
            (cx - wide / 2, cy - high / 2, cx + wide / 2, cy + high / 2)
            for reach in ((6, 12, 20, 30, 42, 56) if must else (6, 12))
            for turn in AROUND
            for cx in (x + math.cos(turn) * (wide / 2 + reach),)
            for cy in (y + math.sin(turn) * (high / 2 + reach),)
        ]
        inside = [
            b for b in boxes
            if b[0] >= frame.x0 + 1 and b[2] <= frame.x1 + 12
            and b[1] >= frame.y0 + 1 and b[3] <= frame.y1 + 6
        ]  # fmt: skip
        free = [b for b in inside if not any(_overlap(b, other) for other in taken)]
        if not free and not must:
            continue
        box = (free or inside or boxes)[0]
        taken.append(box)
        _label(axes, text, (x, y), box, size)


def _label(
    axes: Axes, text: str, at: tuple[float, float], box: tuple[float, ...], size: float
) -> None:
    """The text in its box, with a thin line to its point where it had to move away."""
    near = (min(max(at[0], box[0]), box[2]), min(max(at[1], box[1]), box[3]))
    axes.annotate(
        text,
        xy=at,
        xytext=((box[0] + box[2]) / 2, (box[1] + box[3]) / 2),
        xycoords="figure points",
        textcoords="figure points",
        ha="center",
        va="center",
        fontsize=size,
        color=INK,
        annotation_clip=False,
        arrowprops=(
            {"arrowstyle": "-", "color": MUTED, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
            if math.dist(near, at) > 13
            else None
        ),
    )


AROUND = tuple(math.pi / 8 * k for k in (0, 8, 4, 12, 1, 15, 7, 9, 2, 14, 6, 10, 3, 13, 5, 11))
"""Directions a label may lie in: right, left, above and below first."""


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
