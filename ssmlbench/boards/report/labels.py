"""Places the labels of figures, so that they cover neither each other nor the points.

Libraries for this (adjustText) do not give the same bytes on every run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ssmlbench.boards.report.series import Line
from ssmlbench.boards.report.style import INK, MUTED, Style
from ssmlbench.boards.report.text import short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABEL_LENGTH = 17
"""Letters of a name in a figure; longer names are cut."""
LETTER_WIDTH = 5.6
"""The width of a letter in points, a little more than in the font."""
LABEL_GAP = 11.5
"""Points between the labels of two lines."""
DIRECTIONS = tuple(math.pi / 8 * k for k in (0, 8, 4, 12, 1, 15, 7, 9, 2, 14, 6, 10, 3, 13, 5, 11))
"""Angles from a point to its label, in the order tried: right, left, above and below first."""


def label_room(names: Sequence[str]) -> float:
    """Return the width in points of the names beside a panel."""
    return 24 + LETTER_WIDTH * max(map(len, short_names(names, LABEL_LENGTH).values()))


def end_labels(axes: Axes, lines: Sequence[Line], styles: Mapping[str, Style]) -> None:
    """Write each line's name beside its end, with room between the names."""
    box = axes.get_window_extent()
    ends = [axes.transData.transform((line.x[-1], line.mean[-1])) for line in lines]
    inside = [min(max(float(y), box.y0), box.y1) for _, y in ends]
    heights = spread(inside, LABEL_GAP, box.y0 - 6, box.y1 + 4)
    shown = short_names([line.name for line in lines], LABEL_LENGTH)
    for line, (x, _), y, height in zip(lines, ends, inside, heights, strict=True):
        at = (box.x1 + 18, height)
        axes.annotate(
            shown[line.name],
            xy=at,
            xycoords="figure points",
            va="center",
            fontsize=9,
            annotation_clip=False,
        )
        _leader(axes, (float(x), y), at, styles[line.name].colour)


def _leader(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    """Draw a thin line from a point to its label, in points of the figure; it touches neither.

    Not an annotation's arrow, which takes ten times as long to draw.
    """
    from matplotlib.lines import Line2D
    from matplotlib.transforms import Affine2D

    length = math.dist(start, end)
    if length <= 3:
        return
    near, far = 2 / length, 1 - 1 / length
    xs, ys = (
        [a + share * (b - a) for share in (near, far)] for a, b in zip(start, end, strict=True)
    )
    points = Affine2D().scale(1 / 72) + axes.get_figure(root=True).dpi_scale_trans  # type: ignore[union-attr]
    axes.add_artist(
        Line2D(xs, ys, color=colour, linewidth=0.9, transform=points, clip_on=False, zorder=3)
    )


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions near `wanted`, at least `gap` apart, in [low, high] if they fit."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    groups: list[
        list[float]
    ] = []  # [sum of positions without gaps, count] of neighbours that touch
    for rank, i in enumerate(order):
        groups.append([wanted[i] - rank * gap, 1.0])
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] > groups[-1][0] / groups[-1][1]:
            last = groups.pop()
            groups[-1] = [groups[-1][0] + last[0], groups[-1][1] + last[1]]
    flat = [total / count for total, count in groups for _ in range(int(count))]
    top = high - (len(wanted) - 1) * gap
    placed = [max(min(base, top), low) if top >= low else low for base in flat]
    positions = [0.0] * len(wanted)
    for rank, i in enumerate(order):
        positions[i] = placed[rank] + rank * gap
    return positions


def place_labels(axes: Axes, points: Sequence[tuple[float, float, str, bool]]) -> None:
    """Write a label beside each point (x, y, text, required) where there is room.

    Where there is none, only a required label is written. Greedy, in the order given: sixteen
    directions around the point, near before far.
    """
    frame = axes.get_window_extent()
    centres = [tuple(map(float, axes.transData.transform((x, y)))) for x, y, _, _ in points]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in centres]
    for (_, _, text, required), (x, y) in zip(points, centres, strict=True):
        size = 9.0 if required else 8.0
        wide, high = LETTER_WIDTH * size / 9 * len(text), size + 1
        boxes = [
            (cx - wide / 2, cy - high / 2, cx + wide / 2, cy + high / 2)
            for reach in ((6, 12, 20, 30, 42, 56) if required else (6, 12))
            for turn in DIRECTIONS
            for cx in (x + math.cos(turn) * (wide / 2 + reach),)
            for cy in (y + math.sin(turn) * (high / 2 + reach),)
        ]
        inside = [
            b for b in boxes
            if b[0] >= frame.x0 + 1 and b[2] <= frame.x1 + 12
            and b[1] >= frame.y0 + 1 and b[3] <= frame.y1 + 6
        ]  # fmt: skip
        free = [b for b in inside if not any(_overlap(b, other) for other in taken)]
        if not free and not required:
            continue
        box = (free or inside or boxes)[0]
        taken.append(box)
        _label(axes, text, (x, y), box, size)


def _label(
    axes: Axes, text: str, at: tuple[float, float], box: tuple[float, ...], size: float
) -> None:
    """Write the text in its box, with a thin line to its point if that is far."""
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


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
