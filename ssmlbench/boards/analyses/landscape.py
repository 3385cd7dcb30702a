"""Findings about the loss landscape of kept models; runs/landscape.py computes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ssmlbench.boards.analyses.contract import MOST_LINES, Findings, left_out, table
from ssmlbench.boards.analyses.drawing import finish, legend, line, panels
from ssmlbench.boards.report.style import INK, styles_for
from ssmlbench.protocol.metrics import Values
from ssmlbench.runs.surface import Surface

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_MAPS = 4
"""Methods of the second figure."""
OFFSET = "offset along a random direction (filter norms)"
FIRST, SECOND = "first direction (×: the run's weights)", "second direction"


def landscape_findings(
    where: str, surfaces: Mapping[str, Surface], notes: Sequence[str]
) -> list[Findings]:
    """The curves of all rows along one direction, and the surface of each over two."""
    findings = [_curves(where, surfaces, notes)]
    if any(len(surface.grid) for surface in surfaces.values()):
        findings.append(_surfaces(where, surfaces))
    return findings


def flatness(surface: Surface) -> float:
    """How much the loss rises on average within the offsets of the line: small is flat."""
    centre = int(np.argmin(np.abs(surface.line)))
    return float(np.mean(surface.loss) - surface.loss[centre])


def _curves(where: str, surfaces: Mapping[str, Surface], notes: Sequence[str]) -> Findings:
    records: list[dict[str, Any]] = []
    body = []
    for row, surface in surfaces.items():
        for offset, loss, precision in zip(surface.line, surface.loss, surface.map, strict=True):
            numbers = {"offset": float(offset), "loss": float(loss), "map": float(precision)}
            records.append({"method": row, **numbers})
        centre = int(np.argmin(np.abs(surface.line)))
        start = [f"{surface.loss[centre]:.4f}", f"{surface.map[centre]:.4f}"]
        ends = [f"{flatness(surface):+.4f}", f"{np.mean(surface.map) - surface.map[centre]:+.4f}"]
        body.append([row, *start, *ends])
    first = next(iter(surfaces.values()))
    section = table(
        f"{where} · loss landscape",
        ["method", "loss", "mAP", "mean rise of the loss", "mean change of mAP"],
        body,
        f"Around the kept weights of the first seed, up to ± {first.line.max():g} along one random "
        "direction whose filters are as long as the network's (Li et al., 2018). All methods get the same "
        "random numbers.",
        f"Loss: binary cross-entropy of the known entries of {first.rows[0]:,} labelled rows, the same "
        f"measure for every method, not its own loss. mAP of {first.rows[1]:,} test rows.",
        *notes,
        left_out(surfaces),
    )

    def draw() -> Figure:
        shown = list(surfaces)[:MOST_LINES]
        styles = styles_for(shown)
        figure, axes = panels(2, height=205)
        for row in shown:
            surface = surfaces[row]
            line(axes[0], surface.line, [surface.loss], styles[row], row)
            line(axes[1], surface.line, [surface.map], styles[row], row)
        finish(axes[0], f"Labelled training loss around the weights, {where}", OFFSET, "loss")
        finish(axes[1], "Test mAP around the weights", OFFSET, "mAP")
        legend(axes[0])
        return figure

    return Findings("landscape", where, section, records, draw, "Loss and mAP around the weights.")


def _surfaces(where: str, surfaces: Mapping[str, Surface]) -> Findings:
    records: list[dict[str, Any]] = []
    body = []
    for row, surface in surfaces.items():
        for j, second in enumerate(surface.grid):
            for i, first in enumerate(surface.grid):
                place = {"method": row, "first": float(first), "second": float(second)}
                numbers = {"loss": surface.grid_loss[j, i], "map": surface.grid_map[j, i]}
                records.append({**place, **numbers})
        losses, maps = surface.grid_loss, surface.grid_map
        ends = [
            f"{losses.min():.4f}",
            f"{losses.max():.4f}",
            f"{maps.min():.4f}",
            f"{maps.max():.4f}",
        ]
        body.append([row, *ends])
    section = table(
        f"{where} · loss landscape over two directions",
        ["method", "least loss", "greatest loss", "least mAP", "greatest mAP"],
        body,
        left_out(surfaces, MOST_MAPS),
    )

    def draw() -> Figure:
        shown = list(surfaces)[:MOST_MAPS]
        figure, axes = panels(2 * len(shown), height=200)
        for i, row in enumerate(shown):
            place = f", {where}" if i == 0 else ""
            surface = surfaces[row]
            _contours(axes[2 * i], surface.grid, surface.grid_loss)
            finish(axes[2 * i], f"{row}: labelled training loss{place}", FIRST, SECOND)
            _contours(axes[2 * i + 1], surface.grid, surface.grid_map)
            finish(axes[2 * i + 1], f"{row}: test mAP", FIRST, SECOND)
        return figure

    alt = "Loss and mAP over two directions."
    return Findings("landscape-two-directions", where, section, records, draw, alt)


def _contours(axis: Axes, offsets: Values, values: Values) -> None:
    """Labelled contour lines over a grey surface; a cross marks the weights themselves."""
    axis.pcolormesh(offsets, offsets, values, cmap="Greys", shading="nearest", alpha=0.35)
    if np.ptp(values) > 0:
        lines = axis.contour(offsets, offsets, values, levels=6, colors=INK, linewidths=0.8)
        axis.clabel(lines, fontsize=7)
    axis.plot([0], [0], "x", color=INK, ms=6, mew=1.6)
