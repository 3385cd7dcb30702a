"""The loss surface around the weights of a trained network: numbers only, no network."""

from __future__ import annotations

from dataclasses import dataclass

from ssmlbench.protocol.metrics import Values


@dataclass(frozen=True)
class Surface:
    """Loss and mAP of one network at several offsets of its weights.

    line        n offsets along the first direction
    loss, map   n, the labelled training loss and the test mAP there
    grid        m offsets along each of two directions; empty if there is no second one
    grid_loss, grid_map   m × m, the first direction along the columns
    rows        labelled rows and test rows that were scored
    """

    line: Values
    loss: Values
    map: Values
    grid: Values
    grid_loss: Values
    grid_map: Values
    rows: tuple[int, int]
