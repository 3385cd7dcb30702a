"""Which device a run uses, in which precision, and the settings that make it repeat itself."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import Precision

DEVICES = ("auto", "cpu", "cuda", "mps")


def pick_device(name: str) -> torch.device:
    """`auto` takes CUDA, then Apple's MPS, then the CPU; a named device must be available."""
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(kind for kind, usable in available.items() if usable)
    if name not in available:
        raise UserError(f"--device {name}: must be one of {', '.join(DEVICES)}")
    if not available[name]:
        raise UserError(f"--device {name}: torch finds none on this machine; use --device auto")
    return torch.device(name)


def device_name(device: torch.device) -> str:
    """The device as a result names it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


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


def precisions_of(device: torch.device) -> tuple[Precision, ...]:
    """The precisions that a device can train in, its default first."""
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported():
            return "bfloat16", "float16", "float32"
        return "float16", "float32"
    return ("float32", "bfloat16") if device.type == "cpu" else ("float32",)


def default_precision(name: str, here: bool = True) -> Precision:
    """The default precision of runs on a device.

    here: whether this machine makes the runs. If a cluster does, its device is not known while the
    runs are planned: then `cuda` means bfloat16, and all else float32, which every device has.
    """
    if here:
        return precisions_of(pick_device(name))[0]
    return "bfloat16" if name == "cuda" else "float32"


def check_precision(device: torch.device, precision: Precision) -> None:
    """Raise a UserError if the device cannot train in the precision."""
    if precision not in (possible := precisions_of(device)):
        raise UserError(
            f"--precision {precision}: not available on {device.type} here; use --precision "
            f"{' or '.join(possible)}"
        )


def mixed_precision(
    device: torch.device, precision: Precision
) -> tuple[Callable[[], AbstractContextManager[Any]], torch.amp.GradScaler | None]:
    """The context that a network computes in, and what scales the loss: float16 alone needs it."""
    check_precision(device, precision)
    if precision == "float32":
        return nullcontext, None
    kind = {"bfloat16": torch.bfloat16, "float16": torch.float16}[precision]
    scaler = torch.amp.GradScaler(device.type) if precision == "float16" else None
    return lambda: torch.autocast(device.type, kind), scaler


def reset_peak_memory(device: torch.device) -> None:
    """Reset the count of a GPU's peak memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> float:
    """MB: the device's peak in this epoch; on a CPU the process's high-water mark."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
