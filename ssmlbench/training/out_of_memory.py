"""Repeats a step that ran out of the device's memory, with fewer rows at a time in the encoder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ssmlbench.core.errors import RunFailed
from ssmlbench.kit.method import Method


@contextmanager
def suppress_out_of_memory(device: torch.device) -> Iterator[None]:
    """Go on after the block if the device ran out of memory inside it, and free what it held."""
    try:
        yield
        return
    # torch.OutOfMemoryError is a RuntimeError; Apple's GPUs raise a plain RuntimeError.
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    if device.type == "cuda":
        torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the device has no memory left."""
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error).lower()


class StepBackup:
    """The state before a step, to be restored if the step fails.

    A method's tensors are not copied: those that a step replaces are put back. A step that changes one
    in place, or has its own optimiser, cannot be undone.
    """

    def __init__(self, network: torch.nn.Module, method: Method, device: torch.device):
        self.network = network
        self.method = method
        self.device = device
        self._random = torch.get_rng_state()
        self._device_random = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        self._statistics = [buffer.clone() for buffer in network.buffers()]
        self._tensors = _tensors(method)
        self._versions = {name: value._version for name, value in self._tensors.items()}

    def restore(self) -> None:
        """Restore everything; a RunFailed if that is impossible."""
        changed = [n for n, value in self._tensors.items() if value._version != self._versions[n]]
        if changed or self.method.optimisers:
            why = f"changed self.{changed[0]} in place" if changed else "has its own optimisers"
            raise RunFailed(
                f"out of memory, and the step cannot be repeated: the method {why}; give the same "
                "command with --micro-batch N, for fewer rows at a time in the encoder"
            )
        for name in _tensors(self.method).keys() - self._tensors.keys():
            owner, _, own = name.rpartition(".")
            delattr(self.method.get_submodule(owner), own)
        for name, value in self._tensors.items():
            owner, _, own = name.rpartition(".")
            setattr(self.method.get_submodule(owner), own, value)
        with torch.no_grad():
            for buffer, before in zip(self.network.buffers(), self._statistics, strict=True):
                buffer.copy_(before)
        for parameter in (*self.network.parameters(), *self.method.parameters()):
            parameter.grad = None
        torch.set_rng_state(self._random)
        if self._device_random is not None:
            torch.cuda.set_rng_state(self._device_random, self.device)


def _tensors(method: Method) -> dict[str, Tensor]:
    return {**dict(method.named_parameters()), **dict(method.named_buffers())}
