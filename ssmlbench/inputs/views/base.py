"""The type of a view, and the view that changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Generator, Tensor

View = Callable[[Tensor, Generator], Tensor]
"""(batch of prepared inputs, generator) → the view of the batch."""


@dataclass(frozen=True)
class DrawnView:
    """A view in two steps: its parameters are drawn on the CPU and applied on the device of the rows.

    Every device thus sees the same augmentation.
    """

    draw: Callable[[int, Generator], Any]  # a number of rows → their parameters
    apply: Callable[[Tensor, Any], Tensor]
    apply_on_device: Callable[[Tensor, Any], Tensor] | None = None  # as a batch; None: as `apply`

    def __call__(self, inputs: Tensor, generator: Generator) -> Tensor:
        """Draw and apply."""
        return self.apply(inputs, self.draw(len(inputs), generator))

    def on_device(self, inputs: Tensor, drawn: Any) -> Tensor:
        """Apply parameters to rows on another device than the CPU."""
        return (self.apply_on_device or self.apply)(inputs, drawn)


def identity(inputs: Tensor, generator: Generator) -> Tensor:
    """Return the rows as they are. A view that changes nothing should be this function."""
    return inputs


def is_identity(view: View) -> bool:
    """Whether a view is known to change nothing: its frozen features are then those of `plain`."""
    return view is identity


def plain_views() -> dict[str, View]:
    """Three views that are all the row itself."""
    return {"plain": identity, "weak": identity, "strong": identity}
