"""The settings that make a run repeat its bits, and a record of operations that prevent it."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from threadpoolctl import threadpool_info

from ssmlbench.core.errors import UserError

FAST = "--fast"
"""The entry of `made_with.nondeterministic` for a run with `--fast`."""
ALERT = re.compile(r"(?P<operation>\S+) does not have a deterministic implementation")
OTHER_ALERT = re.compile(r".*non-?deterministic|Deterministic behavior was enabled", re.IGNORECASE)


def check_fast(device: torch.device, fast: bool) -> None:
    """Raise a UserError if `--fast` is given for a device without faster kernels."""
    if fast and device.type != "cuda":
        raise UserError(
            f"--fast: chooses kernels of CUDA, and this run is on {device.type}; leave it out"
        )


def make_repeatable(
    threads: int | None, device: torch.device | None = None, fast: bool = False
) -> None:
    """Choose kernels so that the same spec on the same machine gives the same bits.

    fast: choose the fastest kernels of CUDA instead. The CPU's kernels are always deterministic.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(not fast, warn_only=True)
    # Off: filling all new memory with NaN is a debugging aid that takes a sixth of a step on small
    # networks.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = fast
    if device is not None and device.type == "cuda":
        # TF32 rounds float32 to 10 bits, and torch lets convolutions do so unless told otherwise.
        torch.backends.cudnn.allow_tf32 = fast
        torch.backends.cuda.matmul.allow_tf32 = fast
        # The backward pass of fused attention adds in the order in which blocks end. The flags hold
        # for the CPU's fused kernel too, which is deterministic: they are set for CUDA alone.
        torch.backends.cuda.enable_flash_sdp(fast)
        torch.backends.cuda.enable_mem_efficient_sdp(fast)
        torch.backends.cuda.enable_cudnn_sdp(fast)
        torch.backends.cuda.enable_math_sdp(True)
    if threads:
        torch.set_num_threads(threads)


def cpu_kernels() -> str:
    """Which kernels torch and the BLAS of NumPy and SciPy chose for this processor.

    Others add in another order: the last bits of a sum differ.
    """
    names = {"torch": {torch.backends.cpu.get_cpu_capability()}}
    for library in threadpool_info():
        if kernels := library.get("architecture"):
            names.setdefault(library["internal_api"], set()).add(kernels)
    return ", ".join(f"{library} {'/'.join(sorted(of))}" for library, of in names.items())


@contextmanager
def record_nondeterminism(fast: bool = False) -> Iterator[list[str]]:
    """Record the operations inside the block that torch warns about as not deterministic.

    After the block, the list has their sorted names, with `--fast` first.
    """
    operations: set[str] = set()
    names = [FAST] if fast else []
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def note(message: Warning | str, *where: Any, **more: Any) -> None:
            text = str(message)
            if alert := ALERT.match(text):
                operations.add(alert["operation"])
            elif OTHER_ALERT.match(text):
                operations.add(text.partition(".")[0])
            else:
                shown(message, *where, **more)

        for pattern in (ALERT, OTHER_ALERT):
            warnings.filterwarnings("default", pattern.pattern, UserWarning)
        warnings.showwarning = note
        try:
            yield names
        finally:
            names += sorted(operations)


def nondeterminism_text(names: list[str]) -> str:
    """The warning for a run that may not repeat its bits. names: from `record_nondeterminism`."""
    if names[0] == FAST:
        return "made with --fast: a second run may differ in its last bits"
    return (
        f"a second run may differ in its last bits: {', '.join(names)} "
        f"{'has' if len(names) == 1 else 'have'} no deterministic form on this device"
    )
