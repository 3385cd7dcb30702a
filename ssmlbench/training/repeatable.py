"""The settings that make a run repeat its bits, and a record of what keeps it from doing so."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ssmlbench.core.errors import UserError

FAST = "--fast"
"""What `made_with.nondeterministic` names for a run with `--fast`."""
ALERT = re.compile(r"(?P<operation>\S+) does not have a deterministic implementation")
OTHER_ALERT = re.compile(r".*non-?deterministic|Deterministic behavior was enabled", re.IGNORECASE)


def check_fast(device: torch.device, fast: bool) -> None:
    """Raise a UserError if `--fast` is asked of a device that has no quicker kernels."""
    if fast and device.type != "cuda":
        raise UserError(
            f"--fast: chooses kernels of CUDA, and this run is on {device.type}; leave it out"
        )


def make_repeatable(
    threads: int | None, device: torch.device | None = None, fast: bool = False
) -> None:
    """Choose kernels so that the same spec on the same machine gives the same bits; fast: the quickest.

    The CPU's kernels repeat themselves whatever is chosen here.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(not fast, warn_only=True)
    # It would overwrite all new memory with NaN first, to show up code that reads it unwritten;
    # on small networks that is a sixth of a step.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = fast
    if device is not None and device.type == "cuda":
        # TF32 rounds float32 to 10 bits, and torch lets convolutions do so unless told otherwise.
        torch.backends.cudnn.allow_tf32 = fast
        torch.backends.cuda.matmul.allow_tf32 = fast
        # The backward pass of the fused kernels adds in the order in which blocks end. The flags hold
        # for the CPU's fused kernel too, which repeats itself: they are set for CUDA alone.
        torch.backends.cuda.enable_flash_sdp(fast)
        torch.backends.cuda.enable_mem_efficient_sdp(fast)
        torch.backends.cuda.enable_cudnn_sdp(fast)
        torch.backends.cuda.enable_math_sdp(True)
    if threads:
        torch.set_num_threads(threads)


@contextmanager
def nondeterminism_noted(fast: bool = False) -> Iterator[list[str]]:
    """Note each operation inside the block of which torch says that it may not repeat its bits.

    Gives the sorted names when the block has ended; `--fast` is the first of them.
    """
    found: set[str] = set()
    names = [FAST] if fast else []
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def note(message: Warning | str, *where: Any, **more: Any) -> None:
            said = str(message)
            if alert := ALERT.match(said):
                found.add(alert["operation"])
            elif OTHER_ALERT.match(said):
                found.add(said.partition(".")[0])
            else:
                shown(message, *where, **more)

        for pattern in (ALERT, OTHER_ALERT):
            warnings.filterwarnings("default", pattern.pattern, UserWarning)
        warnings.showwarning = note
        try:
            yield names
        finally:
            names += sorted(found)


def nondeterminism_text(names: list[str]) -> str:
    """The warning for a run that does not repeat its bits; names: what kept it from that."""
    if names[0] == FAST:
        return "made with --fast: a second run may differ in its last bits"
    return (
        f"a second run may differ in its last bits: {', '.join(names)} "
        f"{'has' if len(names) == 1 else 'have'} no deterministic form on this device"
    )
