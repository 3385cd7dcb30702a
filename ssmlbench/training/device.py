"""Which device a run uses, in which precision, and the settings that make it repeat itself."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from ssmlbench.core.errors import UserError

DEVICES = ("auto", "cpu", "cuda", "mps")


def pick_device(name: str) -> torch.device:
    """`auto` takes CUDA, then Apple's MPS, then the CPU; a named device must be there."""
    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(kind for kind, available in there.items() if available)
    if name not in there:
        raise UserError(f"--device {name}: must be one of {', '.join(DEVICES)}")
    if not there[name]:
        raise UserError(f"--device {name}: torch finds none on this machine; use --device auto")
    return torch.device(name)


def make_repeatable(threads: int | None) -> None:
    """The same spec on the same machine gives the same bits."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    # It would overwrite all new memory with NaN first, to show up code that reads it unwritten;
    # on small networks that is a sixth of a step.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False
    if threads:
        torch.set_num_threads(threads)


def mixed_precision(
    device: torch.device,
) -> tuple[Callable[[], Any], str, torch.amp.GradScaler | None]:
    """Mixed precision on CUDA: bfloat16 where it exists, else float16 with a scaled loss."""
    if device.type != "cuda":
        return nullcontext, "float32", None
    if torch.cuda.is_bf16_supported():
        return lambda: torch.autocast("cuda", torch.bfloat16), "bfloat16", None
    return lambda: torch.autocast("cuda", torch.float16), "float16", torch.amp.GradScaler("cuda")


def reset_peak_memory(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> float:
    """MB: the device's peak in this epoch; on a CPU the process's high-water mark."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
