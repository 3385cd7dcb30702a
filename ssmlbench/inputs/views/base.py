"""What a view is, and the view that changes nothing."""

from __future__ import annotations

from collections.abc import Callable

from torch import Generator, Tensor

View = Callable[[Tensor, Generator], Tensor]
"""A batch of prepared inputs and a generator → the batch as it is seen."""


def identity(inputs: Tensor, generator: Generator) -> Tensor:
    """Return the rows as they are. A view that changes nothing should be this function."""
    return inputs


def is_identity(view: View) -> bool:
    """Is this view known to change nothing? Frozen features of it are then those of `plain`."""
    return view is identity


def plain_views() -> dict[str, View]:
    """Three views that are all the row itself."""
    return {"plain": identity, "weak": identity, "strong": identity}
