"""A convolutional encoder on a CPU, frozen and trained: what it gains by keeping freed memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from ssmlbench.core.freed_memory import freed_memory_kept
from ssmlbench.inputs.torchvision_compat import declare_missing_operators

ENCODERS = ("resnet18", "resnet50", "efficientnet_b0")


def gain(
    name: str, rows: int = 64, size: int = 224, rounds: int = 3, training: bool = False
) -> float:
    """The processor time of a batch without kept memory, over that with it. training: of a step."""
    declare_missing_operators()
    from torchvision import models

    encoder = getattr(models, name)(weights=None).to(memory_format=torch.channels_last)
    encoder.train(training)
    optimiser = torch.optim.AdamW(encoder.parameters(), fused=True)
    images = torch.rand(rows, 3, size, size).to(memory_format=torch.channels_last)

    def batch() -> None:
        with torch.set_grad_enabled(training):
            loss = encoder(images).square().mean()
        if training:
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()

    def seconds(memory: Callable[[], AbstractContextManager[None]]) -> float:
        with memory():
            batch()
            began = time.process_time()
            batch()
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
    for name in ENCODERS[:2]:
        faster = gain(name, size=64, training=True)
        print(f"{name}, a training step of 64 images of 64 px: {faster:.2f} ×", flush=True)


if __name__ == "__main__":
    main()
