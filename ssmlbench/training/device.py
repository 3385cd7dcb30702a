"""The device of a run, and its precision."""

from __future__ import annotations

import os
import re
import resource
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import Precision

DEVICES = ("auto", "cpu", "cuda", "mps")
NAMED = re.compile(r"auto|cpu|mps|cuda(:\d{1,3})?")


def check_device_name(name: str) -> None:
    """Raise a UserError unless the name could be a device of some machine."""
    if not NAMED.fullmatch(name):
        raise UserError(
            f"--device {name}: must be one of {', '.join(DEVICES)}, or one GPU of several, e.g. cuda:1"
        )


def pick_device(name: str) -> torch.device:
    """`auto` takes CUDA, then Apple's MPS, then the CPU; a named device must be available."""
    check_device_name(name)
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(kind for kind, usable in available.items() if usable)
    kind, _, number = name.partition(":")
    if not available[kind]:
        raise UserError(f"--device {name}: torch finds none on this machine; use --device auto")
    if number and int(number) >= (gpus := torch.cuda.device_count()):
        there = "only cuda:0" if gpus == 1 else f"cuda:0 to cuda:{gpus - 1}"
        raise UserError(f"--device {name}: this machine has {there}")
    return torch.device(name)


def device_name(device: torch.device) -> str:
    """The device's name in results."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def gpu_number(device: torch.device) -> str:
    """The number of a GPU in CUDA_VISIBLE_DEVICES; empty for other devices."""
    if device.type != "cuda":
        return ""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    index = device.index or 0
    return visible.split(",")[index] if visible else str(index)


def precisions_of(device: torch.device) -> tuple[Precision, ...]:
    """The precisions that a device can train in, its default first."""
    if device.type == "cuda":
        if _computes_bfloat16(device):
            return "bfloat16", "float16", "float32"
        return "float16", "float32"
    return ("float32", "bfloat16") if device.type == "cpu" else ("float32",)


def _computes_bfloat16(device: torch.device) -> bool:
    """Whether a GPU has bfloat16 itself: Nvidia's since compute capability 8.0, AMD's.

    `torch.cuda.is_bf16_supported()` is also true for older ones, where it is emulated: slower than
    float32, and without convolutions. It asks about the current device, which may be another one.
    """
    return bool(torch.version.hip) or torch.cuda.get_device_properties(device).major >= 8


def default_precision(name: str, here: bool = True) -> Precision:
    """The default precision of runs on a device.

    here: whether this machine makes the runs. If a cluster does, its device is not known while the
    runs are planned: then `cuda` means bfloat16, and all else float32, which every device has.
    """
    if here:
        return precisions_of(pick_device(name))[0]
    return "bfloat16" if name.partition(":")[0] == "cuda" else "float32"


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
    """The autocast context of a network, and the scaler of the loss, which only float16 needs."""
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
