"""A frozen encoder's features of one split: in memory, or on disk if they are large."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Generator, Tensor

from ssmlbench.inputs.splits import ReadRows, RowNumbers, view_by_view
from ssmlbench.inputs.views import View, feature_dropout, identity


class StoredFeatures(Protocol):
    """The features of one view on disk, with the interface of a tensor for reading rows."""

    def __len__(self) -> int: ...

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """The features of some rows; `dim` is 0."""
        ...

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> StoredFeatures:
        """The same rows, with `scale` applied to every vector when it is read."""
        ...


ViewFeatures = Tensor | StoredFeatures


class CachedInputs:
    """One split's features, in memory or on disk; the strong view of a row is one of its R cached draws."""

    on_the_fly = False

    def __init__(
        self,
        values: Mapping[str, ViewFeatures],
        draws: int,
        lazy: Mapping[str, Callable[[], ViewFeatures]] | None = None,
    ):
        """Features by view; views that few methods use are loaded when they are first used.

        values: view → N × D half-precision features, N × 4 × D for patches. Strong views have N · R
        rows, a row's R draws one after the other.
        lazy: view → loader.
        """
        self.values = dict(values)
        self.draws = draws
        self.lazy = dict(lazy or {})
        self.views: dict[str, View] = dict.fromkeys((*values, *self.lazy), identity)

    def __len__(self) -> int:
        return len(self.values["plain"])

    def read(self, rows: RowNumbers) -> ReadRows:
        """The rows, for any number of views."""
        return view_by_view(self, rows)

    def view(self, rows: RowNumbers, view: str, generator: Generator) -> Tensor:
        """Cached features of the rows; for a strong view, one draw per row with feature dropout."""
        if view not in self.values:
            self.values[view] = self.lazy.pop(view)()
        strong = view.startswith("strong")
        where = torch.from_numpy(rows)
        if strong and self.draws > 1:
            chosen = torch.randint(0, self.draws, (len(rows),), generator=generator)
            where = where * self.draws + chosen
        features = self.values[view].index_select(0, where).flatten(0, -2).float()
        # R cached draws are overfitted: apply fresh 50 % feature dropout in each step.
        return feature_dropout(features, generator) if strong else features

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> CachedInputs:
        """The same rows with every vector put through `scale`."""

        def apply(features: ViewFeatures) -> ViewFeatures:
            if isinstance(features, Tensor):
                return scale(features.flatten(0, -2)).view_as(features)
            return features.scaled(scale)

        done: dict[int, ViewFeatures] = {}  # two views may be one tensor
        for tensor in self.values.values():
            if id(tensor) not in done:
                done[id(tensor)] = apply(tensor)
        return CachedInputs(
            {view: done[id(tensor)] for view, tensor in self.values.items()},
            self.draws,
            {view: lambda load=load: apply(load()) for view, load in self.lazy.items()},  # type: ignore[misc]
        )
