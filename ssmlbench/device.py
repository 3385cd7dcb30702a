"""Which device a run uses, and the settings that make it repeat itself."""

from __future__ import annotations

import os

import torch

from ssmlbench.errors import UserError

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
    torch.backends.cudnn.benchmark = False
    if threads:
        torch.set_num_threads(threads)


def core_count() -> int:
    """The cores this process may use, not the ones the machine has."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1
