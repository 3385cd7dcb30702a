"""The device under test: its name, and the detection of steps that wait for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ssmlbench.training.device import device_name
from ssmlbench.training.trainer import Trainer

WaitWatch = Callable[[], AbstractContextManager[list[str]]]
"""A context whose list has, after the block, the lines of code that waited for the device."""


@dataclass(frozen=True)
class Subject:
    """A device under test."""

    device: torch.device
    waits: WaitWatch
    draws: Callable[[], bool]  # whether it may have drawn random numbers since the last seed

    @classmethod
    def of(cls, device: torch.device) -> Subject:
        """A device of this machine."""
        if device.type == "cuda":
            return cls(device, _cuda_waits, lambda: _cuda_draws(device))
        return cls(device, _no_waits, lambda: device.type != "cpu")

    @property
    def name(self) -> str:
        """Its name in results."""
        return device_name(self.device)

    @property
    def sees_waits(self) -> bool:
        """Whether steps that wait for the device are found: torch shows them on CUDA alone."""
        return self.waits is not _no_waits

    @property
    def is_cpu(self) -> bool:
        """Whether it is the CPU: then no second device is compared."""
        return self.device.type == "cpu"


@contextmanager
def _no_waits() -> Iterator[list[str]]:
    yield []


@contextmanager
def _cuda_waits() -> Iterator[list[str]]:
    """The lines of code that made the host wait for CUDA, from torch's debug mode."""
    found: list[str] = []
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode(before)
    places = {
        f"{Path(w.filename).name}:{w.lineno}": None
        for w in said
        if "synchronizing CUDA operation" in str(w.message)
    }
    found.extend(places)


def _cuda_draws(device: torch.device) -> bool:
    generator = torch.cuda.default_generators[device.index or 0]
    fresh = torch.Generator(device).manual_seed(generator.initial_seed())
    return not torch.equal(generator.get_state(), fresh.get_state())


@contextmanager
def steps_watched(trainer: Trainer, waits: WaitWatch) -> Iterator[list[str]]:
    """The lines of code that waited for the device in gradient steps inside the block."""
    found: list[str] = []
    batches = trainer.batching.batches

    def watched(*arguments: Any) -> Iterator[Any]:
        with waits() as waited:  # between its batches the trainer takes the steps
            yield from batches(*arguments)
        found.extend(waited)

    trainer.batching.batches = watched  # type: ignore[method-assign, assignment]
    try:
        yield found
    finally:
        trainer.batching.batches = batches  # type: ignore[method-assign]
