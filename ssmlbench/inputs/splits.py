"""The inputs of one split: in memory, on disk, or as cached features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from ssmlbench.core.counts import counted
from ssmlbench.core.errors import ContractError
from ssmlbench.inputs.views import PATCHES, DrawnView, View

RowNumbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DeferredView:
    """A view of prepared rows whose parameters are drawn; applying it is deferred until they are on a GPU.

    So the CPU has less to compute, and rows with several views are copied to the GPU once.
    """

    prepared: Tensor
    view: DrawnView
    drawn: Any

    def applied_to(self, prepared: Tensor) -> Tensor:
        """The view of the rows. prepared: their copy on the device."""
        return self.view.on_device(prepared, self.drawn)

    def with_rows(self, prepared: Tensor) -> DeferredView:
        """The same view of a copy of the rows."""
        return replace(self, prepared=prepared)


class ReadRows(Protocol):
    """Some rows of a split, read once for all their views."""

    def view(self, view: str, generator: Generator) -> Tensor:
        """One view of the rows, as a network takes them."""
        ...

    def deferred(self, view: str, generator: Generator) -> Tensor | DeferredView:
        """The same; a view that a device can apply is only drawn, in the same order of draws."""
        ...


class SplitInputs(Protocol):
    """The inputs of a split, as training uses them."""

    views: dict[str, View]
    on_the_fly: bool  # `view` is slow, and may be called from several threads

    def __len__(self) -> int: ...

    def view(self, rows: RowNumbers, view: str, generator: Generator) -> Tensor:
        """One view of the rows, as a network takes them."""
        ...

    def read(self, rows: RowNumbers) -> ReadRows:
        """The rows, for any number of views."""
        ...

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> SplitInputs:
        """The same rows with every vector put through `scale` before any view is taken."""
        ...


class PreparedRows(ABC):
    """A split whose rows are prepared first, and then seen in a view."""

    views: dict[str, View]
    on_the_fly: bool

    @abstractmethod
    def prepared(self, rows: RowNumbers) -> Tensor:
        """The rows as the encoder's `prepare` gives them, in memory of their own."""

    def view(self, rows: RowNumbers, view: str, generator: Generator) -> Tensor:
        """One view of the rows, as a network takes them."""
        return self.read(rows).view(view, generator)

    def read(self, rows: RowNumbers) -> ReadRows:
        """The rows, which are prepared once for any number of views."""
        return _PreparedOnce(self, rows)


class _PreparedOnce:
    """Rows that are prepared for the first view, and again if a view changed them in place."""

    def __init__(self, inputs: PreparedRows, rows: RowNumbers):
        self.inputs = inputs
        self.rows = rows
        self._prepared: Tensor | None = None

    def view(self, view: str, generator: Generator) -> Tensor:
        if not len(self.rows) and self.inputs.on_the_fly:
            # See one row to learn the shape, return an empty slice of it.
            return self.inputs.view(np.zeros(1, dtype=np.int64), view, generator)[:0]
        if self._prepared is None:
            self._prepared = self.inputs.prepared(self.rows)
        prepared, version = self._prepared, _version(self._prepared)
        seen = self.inputs.views[view](prepared, generator)
        if _version(prepared) != version:  # a plugin's view may work in place
            self._prepared = None
        rows = len(self.rows) * (PATCHES if view.endswith("-patches") else 1)
        found = len(seen) if isinstance(seen, Tensor) and seen.ndim else None
        if found != rows:  # torch would repeat a single row
            got = type(seen).__name__ if found is None else counted(found, "row")
            raise ContractError(
                f"the {view} view of {counted(len(self.rows), 'input')} is {got}; expected "
                f"{counted(rows, 'row')}"
            )
        return seen

    def deferred(self, view: str, generator: Generator) -> Tensor | DeferredView:
        drawn_view = self.inputs.views[view]
        if not isinstance(drawn_view, DrawnView) or not len(self.rows):
            return self.view(view, generator)
        if self._prepared is None:
            self._prepared = self.inputs.prepared(self.rows)
        return DeferredView(self._prepared, drawn_view, drawn_view.draw(len(self.rows), generator))


def _version(tensor: Tensor) -> int:
    """How often a tensor was changed in place; 0 for tensors of inference mode, which do not count."""
    return 0 if tensor.is_inference() else tensor._version


class _ViewByView:
    """Rows that are read again for each view."""

    def __init__(self, inputs: SplitInputs, rows: RowNumbers):
        self.inputs = inputs
        self.rows = rows

    def view(self, view: str, generator: Generator) -> Tensor:
        return self.inputs.view(self.rows, view, generator)

    def deferred(self, view: str, generator: Generator) -> Tensor | DeferredView:
        return self.view(view, generator)


def view_by_view(inputs: SplitInputs, rows: RowNumbers) -> ReadRows:
    """Rows of a split whose views share no preparation."""
    return _ViewByView(inputs, rows)


class Inputs(PreparedRows):
    """One split in memory: N × C × H × W uint8 images, N × T token ids, or N × D float vectors."""

    def __init__(self, values: Tensor, views: dict[str, View], on_the_fly: bool = False):
        """on_the_fly: whether its views are slow."""
        self.values = values
        self.views = views
        self.on_the_fly = on_the_fly

    def __len__(self) -> int:
        return len(self.values)

    def prepared(self, rows: RowNumbers) -> Tensor:
        """The rows as the encoder's `prepare` gives them."""
        return self.values[torch.from_numpy(rows)]

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> Inputs:
        """The same rows with every vector put through `scale` before any view is taken."""
        return Inputs(scale(self.values), self.views)


class StoredInputs(PreparedRows):
    """One split too large for memory: rows are read and prepared when a view of them is taken."""

    def __init__(
        self,
        count: int,
        prepare: Callable[[RowNumbers], Tensor],
        views: dict[str, View],
        on_the_fly: bool = True,
    ):
        """prepare: row numbers → prepared rows. on_the_fly: whether it is slow.

        A slow `prepare` is never called without rows.
        """
        self.count = count
        self.prepare = prepare
        self.views = views
        self.on_the_fly = on_the_fly

    def __len__(self) -> int:
        return self.count

    def prepared(self, rows: RowNumbers) -> Tensor:
        """The rows as the encoder's `prepare` gives them."""
        return self.prepare(rows)

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> StoredInputs:
        """The same rows with every vector put through `scale` before any view is taken."""
        prepare = self.prepare
        return StoredInputs(
            self.count, lambda rows: scale(prepare(rows)), self.views, self.on_the_fly
        )


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

    def read(self, rows: RowNumbers) -> ReadRows:
        """The rows, for any number of views."""
        return self.whole.read(self.rows[rows])

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> SomeRows:
        """The same rows with every vector put through `scale` before any view is taken."""
        return SomeRows(self.whole.scaled(scale), self.rows)


class BackTranslated:
    """Texts with back-translations: a strong view takes one of the two with equal probability."""

    def __init__(self, inputs: SplitInputs, translated: SplitInputs):
        self.inputs = inputs
        self.translated = translated
        self.views = inputs.views
        self.on_the_fly = inputs.on_the_fly

    def __len__(self) -> int:
        return len(self.inputs)

    def read(self, rows: RowNumbers) -> ReadRows:
        """The rows, for any number of views."""
        return view_by_view(self, rows)

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
