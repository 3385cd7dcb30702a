"""A frozen convolutional encoder on a CPU: what it gains by keeping freed memory (core/freed_memory.py)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from ssmlbench.core.freed_memory import freed_memory_kept
from ssmlbench.inputs.torchvision_compat import declare_missing_operators

ENCODERS = ("resnet18", "resnet50", "efficientnet_b0")


def gain(name: str, rows: int = 64, size: int = 224, rounds: int = 3) -> float:
    """The processor time of a batch without kept memory, over that with it."""
    declare_missing_operators()
    from torchvision import models

    encoder = getattr(models, name)(weights=None).eval().to(memory_format=torch.channels_last)
    images = torch.rand(rows, 3, size, size).to(memory_format=torch.channels_last)

    def seconds(memory: Callable[[], AbstractContextManager[None]]) -> float:
        with memory(), torch.inference_mode():
            encoder(images)
            began = time.process_time()
            encoder(images)
            return time.process_time() - began

    return statistics.median(
        seconds(nullcontext) / seconds(freed_memory_kept) for _ in range(rounds)
    )


def main() -> None:
    torch.set_num_threads(1)
    for name in ENCODERS:
        print(
            f"{name}, 64 images of 224 px: {gain(name):.2f} × as fast with freed memory kept",
            flush=True,
        )


if __name__ == "__main__":
    main()
