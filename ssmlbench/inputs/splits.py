"""The inputs of one split, wherever they are kept: in memory, on disk, or as cached features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from ssmlbench.inputs.views import View, feature_dropout, identity

RowNumbers = npt.NDArray[np.int64]


class SplitInputs(Protocol):
    """What training needs of a split's inputs."""

    views: dict[str, View]
    on_the_fly: bool  # `view` is slow, and may be called from several threads

    def __len__(self) -> int: ...

    def view(self, rows: RowNumbers, view: str, generator: Generator) -> Tensor:
        """One view of the rows, as a network takes them."""
        ...

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> SplitInputs:
        """The same rows with every vector put through `scale` before any view is taken."""
        ...


class Inputs:
    """One split in memory: N × C × H × W uint8 images, N × T token ids, or N × D float vectors."""

    on_the_fly = False

    def __init__(self, values: Tensor, views: dict[str, View]):
        self.values = values
        self.views = views

    def __len__(self) -> int:
        return len(self.values)

    def view(self, rows: RowNumbers, view: str, generator: Generator) -> Tensor:
        """One view of the rows, as a network takes them."""
        return self.views[view](self.values[torch.from_numpy(rows)], generator)

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> Inputs:
        """The same rows with every vector put through `scale` before any view is taken."""
        return Inputs(scale(self.values), self.views)


class StoredInputs:
    """One split too large for memory: rows are read, decoded and prepared in each call of `view`."""

    on_the_fly = True

    def __init__(
        self,
        column: Any,
        prepare: Callable[[Sequence[Any]], Tensor],
        views: dict[str, View],
    ):
        self.column = column
        self.prepare = prepare
        self.views = views

    def __len__(self) -> int:
        return len(self.column)

    def view(self, rows: RowNumbers, view: str, generator: Generator) -> Tensor:
        """One view of the rows, as a network takes them."""
        if not len(rows):  # read one row to learn the shape, return an empty slice of it
            return self.view(np.zeros(1, dtype=np.int64), view, generator)[:0]
        return self.views[view](self.prepare([self.column[int(row)] for row in rows]), generator)

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> StoredInputs:
        """The same rows with every vector put through `scale` before any view is taken."""
        return StoredInputs(self.column, lambda raws: scale(self.prepare(raws)), self.views)


class SomeRows:
    """Some rows of a split, as a separate split."""

    def __init__(self, whole: SplitInputs, rows: RowNumbers):
        self.whole = whole
        self.rows = rows
        self.views = whole.views
        self.on_the_fly = whole.on_the_fly

    def __len__(self) -> int:
        return len(self.rows)

    def view(self, rows: RowNumbers, view: str, generator: Generator) -> Tensor:
        """One view of the rows, as a network takes them."""
        return self.whole.view(self.rows[rows], view, generator)

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> SomeRows:
        """The same rows with every vector put through `scale` before any view is taken."""
        return SomeRows(self.whole.scaled(scale), self.rows)


class BackTranslated:
    """Texts with their back-translations: the strong view is of either, with equal probability."""

    def __init__(self, inputs: SplitInputs, translated: SplitInputs):
        self.inputs = inputs
        self.translated = translated
        self.views = inputs.views
        self.on_the_fly = inputs.on_the_fly

    def __len__(self) -> int:
        return len(self.inputs)

    def view(self, rows: RowNumbers, view: str, generator: Generator) -> Tensor:
        """One view of the rows, as a network takes them."""
        seen = self.inputs.view(rows, view, generator)
        if view != "strong":
            return seen
        other = self.translated.view(rows, view, generator)
        chosen = torch.rand(len(seen), generator=generator) < 0.5
        return torch.where(chosen.view(-1, *[1] * (seen.ndim - 1)), other, seen)

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> BackTranslated:
        """The same rows with every vector put through `scale` before any view is taken."""
        return BackTranslated(self.inputs.scaled(scale), self.translated.scaled(scale))


class CachedInputs:
    """One split's features in memory; the strong view of a row is one of its R cached draws."""

    on_the_fly = False

    def __init__(
        self,
        values: dict[str, Tensor],
        draws: int,
        lazy: Mapping[str, Callable[[], Tensor]] | None = None,
    ):
        """Keep features by view, and load views that few methods use on their first use.

        values: view → N × D half-precision features, N × 4 × D for patches. Strong views have N · R
        rows, a row's R draws one after the other.
        lazy: view → loader.
        """
        self.values = values
        self.draws = draws
        self.lazy = dict(lazy or {})
        self.views: dict[str, View] = dict.fromkeys((*values, *self.lazy), identity)

    def __len__(self) -> int:
        return len(self.values["plain"])

    def view(self, rows: RowNumbers, view: str, generator: Generator) -> Tensor:
        """Cached features of the rows; of a strong view, one draw each with features dropped."""
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

        def apply(features: Tensor) -> Tensor:
            return scale(features.flatten(0, -2)).view_as(features)

        done: dict[int, Tensor] = {}  # two views may be one tensor
        for tensor in self.values.values():
            if id(tensor) not in done:
                done[id(tensor)] = apply(tensor)
        return CachedInputs(
            {view: done[id(tensor)] for view, tensor in self.values.items()},
            self.draws,
            {view: lambda load=load: apply(load()) for view, load in self.lazy.items()},  # type: ignore[misc]
        )
