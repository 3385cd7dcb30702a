"""A second device without a GPU: its tensors carry real values, and what a GPU would wait for is counted.

It takes the name of torch's `meta` device, whose tensors have no values outside of this block. A
tensor on it wraps a CPU tensor that nothing else can reach; every operation is computed by the CPU's
kernel, so results have the CPU's bits. As on a real accelerator, an operation on tensors of two
devices raises, and values reach the host only by a copy.

    with SimulatedDevice() as sim:
        trainer = toy_trainer(..., device=sim.device)
        trainer.train()
    sim.traffic.waits, sim.traffic.to_device, sim.traffic.to_host
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import pytest
import torch
from torch import Tensor
from torch.optim import adam, adamw, optimizer
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from ssmlbench.training.trainer import Trainer

NAME = "meta"
ATEN = torch.ops.aten
COPIES = {ATEN._to_copy, ATEN.copy_, ATEN._foreach_copy_, ATEN._copy_from}
WAITS = {  # the host needs a value, or the size of the result, before it can go on
    ATEN._local_scalar_dense,
    ATEN.item,
    ATEN.nonzero,
    ATEN.masked_select,
    ATEN._unique2,
    ATEN.unique_dim,
    ATEN.unique_consecutive,
    ATEN.equal,
    ATEN.is_nonzero,
    ATEN.bincount,
    ATEN.repeat_interleave,
    ATEN._linalg_check_errors,
    ATEN._linalg_eigh,
    ATEN._linalg_svd,
}
INDEXING = {ATEN.index, ATEN.index_put, ATEN.index_put_, ATEN._index_put_impl_}
MASKS = (torch.bool, torch.uint8)


class MixedDevices(RuntimeError):
    """An operation was given tensors of two devices."""


DEVICE = torch.device(NAME)


class SimulatedTensor(Tensor):
    """A tensor on the simulated device; `raw` has its values."""

    raw: Tensor

    @staticmethod
    def __new__(cls, raw: Tensor) -> SimulatedTensor:  # noqa: PYI034
        """Wrap a CPU tensor."""
        made: SimulatedTensor = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            raw.size(),
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=DEVICE,
        )
        made.raw = raw
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse: the mode sees every operation first."""
        raise RuntimeError(f"{func} on {NAME} outside of `with SimulatedDevice()`")

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        """Shape only: printing values would wait for the device."""
        return f"SimulatedTensor({tuple(self.shape)}, {self.dtype})"


@dataclass
class Traffic:
    """Copies between host and device, and waits of the host, by operation.

    A copy to the device that is not asked for as `non_blocking` is a wait too.
    """

    to_device: Counter[str] = field(default_factory=Counter)
    unpinned: Counter[str] = field(default_factory=Counter)  # of those, from memory not pinned
    to_host: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)

    def since(self, before: Traffic) -> Traffic:
        """What was added since a copy was taken."""
        return Traffic(
            self.to_device - before.to_device,
            self.unpinned - before.unpinned,
            self.to_host - before.to_host,
            self.waits - before.waits,
        )

    def copied(self) -> Traffic:
        """A copy, for a later `since`."""
        counts = (self.to_device, self.unpinned, self.to_host, self.waits)
        return Traffic(*map(Counter, counts))


def accept_in_fused_optimisers(patch: pytest.MonkeyPatch) -> None:
    """Have torch take the device for one that has fused optimisers."""
    known = [*_foreach_utils._get_fused_kernels_supported_devices(), NAME]
    for module in (_foreach_utils, optimizer, adam, adamw):  # the last two in torch 2.4
        if hasattr(module, "_get_fused_kernels_supported_devices"):
            patch.setattr(module, "_get_fused_kernels_supported_devices", lambda: known)


class SimulatedDevice(TorchDispatchMode):
    """The device is usable inside the block."""

    def __init__(self) -> None:
        super().__init__()
        self.device = DEVICE
        self.traffic = Traffic()
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> Self:
        """Start; fused optimisers accept the device, as they do every accelerator."""
        accept_in_fused_optimisers(self._patch)
        self._patch.setattr(Tensor, "pin_memory", _pinned)
        super().__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        """End."""
        super().__exit__(*raised)
        self._patch.undo()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute one operation by the CPU's kernel, and note what crosses."""
        kwargs = dict(kwargs or {})
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        there = [x for x in given if isinstance(x, SimulatedTensor)]
        target = kwargs.get("device", next((x for x in args if isinstance(x, torch.device)), None))
        made_there = torch.device(target).type == NAME if target is not None else bool(there)
        if not there and not made_there:
            return func(*args, **kwargs)
        name, packet = str(func), func.overloadpacket
        if torch.is_inference_mode_enabled() and packet not in WAITS:
            TorchDispatchMode.__enter__(self)  # also for the parts of the operation
            try:  # there operations arrive whole: `to`, which copies, and not the copy
                parts = func.decompose(*args, **kwargs)
            finally:
                TorchDispatchMode.__exit__(self, None, None, None)
            if parts is not NotImplemented:
                return parts
        if packet in COPIES:
            # copy_(to, from): the result is where its first argument is
            lands_there = made_there if packet is ATEN._to_copy else _on(args[0])
            comes_from_there = _on(args[0] if packet is ATEN._to_copy else args[1])
            if lands_there and not comes_from_there:
                self._count_copy(name, args, kwargs, packet is ATEN._to_copy)
            elif comes_from_there and not lands_there:
                self.traffic.to_host[name] += 1
            made_there = lands_there
        elif there and any(x.dim() for x in given if not isinstance(x, SimulatedTensor)):
            raise MixedDevices(f"{name}: expected all tensors on one device, found cpu and {NAME}")
        elif packet in WAITS or (packet in INDEXING and _has_mask(args[1])):
            self.traffic.waits[name] += 1
        known = {id(x.raw): x for x in there}
        result = func(*tree_map(_raw, args), **tree_map(_raw, kwargs))
        if not made_there:
            return result
        # An operation in place returns its argument: the same object must come back.

        def wrapped(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            return known[id(value)] if id(value) in known else SimulatedTensor(value)

        return tree_map(wrapped, result)

    def _count_copy(self, name: str, args: Any, kwargs: Any, made: bool) -> None:
        """Count a copy to the device. made: its result is new, and its source the first argument."""
        self.traffic.to_device[name] += 1
        source = args[0] if made else args[1]
        asked = kwargs.get("non_blocking", args[2] if not made and len(args) > 2 else False)
        if not asked:
            self.traffic.waits[f"blocking {name}"] += 1
        if not all(getattr(x, "pinned", False) for x in tree_leaves(source)):
            self.traffic.unpinned[name] += 1


def _pinned(tensor: Tensor) -> Tensor:
    """A copy that counts as one in memory from which the device copies by itself."""
    copied = tensor.clone()
    copied.pinned = True  # type: ignore[attr-defined]
    return copied


def _on(value: Any) -> bool:
    return any(isinstance(x, SimulatedTensor) for x in tree_leaves(value))


def _raw(value: Any) -> Any:
    if isinstance(value, SimulatedTensor):
        return value.raw
    is_ours = isinstance(value, torch.device) and value.type == NAME
    return torch.device("cpu") if is_ours else value


def _has_mask(indices: Any) -> bool:
    return any(isinstance(x, Tensor) and x.dtype in MASKS for x in tree_leaves(indices))


@contextmanager
def traffic_of_steps(trainer: Trainer, sim: SimulatedDevice) -> Iterator[list[Traffic]]:
    """The traffic of each gradient step that the trainer takes inside the block, its batch included."""
    steps: list[Traffic] = []
    batches = trainer.batching.batches

    def counted(*args: Any) -> Iterator[Any]:
        before = sim.traffic.copied()
        for batch in batches(*args):
            yield batch  # the trainer takes the step, and comes back for the next batch
            steps.append(sim.traffic.since(before))
            before = sim.traffic.copied()

    trainer.batching.batches = counted  # type: ignore[method-assign]
    try:
        yield steps
    finally:
        trainer.batching.batches = batches  # type: ignore[method-assign]
