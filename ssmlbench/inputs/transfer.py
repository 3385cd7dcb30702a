"""Inputs on their way to the device: from pinned memory, a batch ahead on a side stream.

Deferred views are applied there. What the device has computed comes back without a wait for it. On the CPU
nothing is moved. Which rows and views a batch has is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from ssmlbench.inputs.encoders import Encoder
from ssmlbench.inputs.splits import DeferredView

PartName = TypeVar("PartName", bound=Hashable)
Parts = Mapping[PartName, Tensor | DeferredView]
"""Inputs by name; deferred views are applied when they are moved."""
Moved = list[dict[PartName, Tensor]]

VIEWS_ON_CPU = ("cpu", "mps")
"""Devices whose views are applied on the CPU, from memory that is not pinned."""


class SideStream(Protocol):
    """Work beside what the device computes."""

    def beside(self) -> AbstractContextManager[object]:
        """Queue what is called inside on the side stream."""
        ...

    def mark(self) -> object:
        """Mark the end of what is queued so far."""
        ...

    def wait(self, mark: object, tensors: Sequence[Tensor]) -> None:
        """Let the device's own stream wait for a mark, and use these tensors from then on."""
        ...

    def computed(self) -> Callable[[], object]:
        """Waits, when it is called, until the device has done what its own stream has so far."""
        ...


class CudaSideStream:
    """A second stream of a CUDA device."""

    def __init__(self, device: torch.device):
        self.device = device
        self.stream = torch.cuda.Stream(device)

    def beside(self) -> AbstractContextManager[object]:
        """Queue what is called inside on the side stream."""
        return torch.cuda.stream(self.stream)

    def mark(self) -> object:
        """Mark the end of what is queued so far."""
        return self.stream.record_event()

    def wait(self, mark: object, tensors: Sequence[Tensor]) -> None:
        """Let the device's own stream wait for a mark, and use these tensors from then on."""
        own = torch.cuda.current_stream(self.device)
        own.wait_event(mark)  # type: ignore[arg-type]
        for tensor in tensors:  # or their memory could be given away while they are in use
            tensor.record_stream(own)

    def computed(self) -> Callable[[], object]:
        """Waits, when it is called, until the device has done what its own stream has so far."""
        done: Callable[[], object] = (
            torch.cuda.current_stream(self.device).record_event().synchronize
        )
        return done


class Transfer:
    """Moves the inputs of one batch after the other to a device."""

    def __init__(self, device: torch.device, side: SideStream | None = None):
        """side: by default a stream of its own on CUDA, none elsewhere."""
        self.device = device
        self.side = side or (CudaSideStream(device) if device.type == "cuda" else None)

    @property
    def applies_views(self) -> bool:
        """Whether the device applies the views that can be applied there."""
        return self.device.type not in VIEWS_ON_CPU

    def trimmed(
        self, encoder: Encoder, parts: dict[PartName, Tensor | DeferredView]
    ) -> dict[PartName, Tensor | DeferredView]:
        """The inputs of one pass without the padding that `Encoder.cut` removes.

        On the CPU they stay as they are: there an encoder can read the lengths itself without a wait.
        They do so also if a view is deferred: its inputs are not known yet.
        """
        tensors = {key: part for key, part in parts.items() if isinstance(part, Tensor)}
        if self.device.type == "cpu" or len(tensors) < len(parts):
            return parts
        return dict(zip(tensors, encoder.cut(list(tensors.values())), strict=True))

    def pinned(
        self, batch: list[dict[PartName, Tensor | DeferredView]]
    ) -> list[dict[PartName, Tensor | DeferredView]]:
        """The batch in memory that can be copied while the CPU goes on; as it is without a GPU."""
        if self.device.type in VIEWS_ON_CPU:
            return batch
        copies: dict[int, Tensor] = {}

        def pin(tensor: Tensor) -> Tensor:
            if id(tensor) not in copies:
                copies[id(tensor)] = tensor.pin_memory()
            return copies[id(tensor)]

        return [
            {
                key: pin(part) if isinstance(part, Tensor) else part.with_rows(pin(part.prepared))
                for key, part in parts.items()
            }
            for parts in batch
        ]

    def ahead(self, batches: Iterator[Sequence[Parts[PartName]]]) -> Iterator[Moved[PartName]]:
        """Each batch on the device; with a side stream, the next one is on its way by then."""
        if self.side is None:
            yield from map(self.moved, batches)
            return
        waiting: tuple[Moved[PartName], object] | None = None
        for batch in batches:
            with self.side.beside():
                moved = self.moved(batch)
                mark = self.side.mark()
            if waiting is not None:
                yield self._ready(*waiting)
            waiting = moved, mark
        if waiting is not None:
            yield self._ready(*waiting)

    def _ready(self, moved: Moved[PartName], mark: object) -> Moved[PartName]:
        assert self.side is not None
        self.side.wait(mark, [tensor for parts in moved for tensor in parts.values()])
        return moved

    def fetched(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Start to copy a tensor to the host; what is returned waits for the copy, and gives it."""
        if self.device.type in VIEWS_ON_CPU:
            return tensor.cpu
        copy = torch.empty(tensor.shape, dtype=tensor.dtype).pin_memory()
        copy.copy_(tensor, non_blocking=True)
        arrived = self.side.computed() if self.side is not None else lambda: None

        def wait() -> Tensor:
            arrived()
            return copy

        return wait

    def moved(self, batch: Sequence[Parts[PartName]]) -> Moved[PartName]:
        """The batch on the device; rows go there once, however many views are taken of them."""
        copies: dict[int, Tensor] = {}

        def move(tensor: Tensor) -> Tensor:
            if id(tensor) not in copies:
                copies[id(tensor)] = tensor.to(self.device, non_blocking=True)
            return copies[id(tensor)]

        return [
            {
                key: move(part)
                if isinstance(part, Tensor)
                else part.applied_to(move(part.prepared))
                for key, part in parts.items()
            }
            for parts in batch
        ]
