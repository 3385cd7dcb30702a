"""Keeps freed memory in the process, where the same large tensors are made again and again.

glibc returns a large block to the system when it is freed, and the system clears every page of the
next one. In a convolutional encoder on a CPU that can take half of the processor time.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Constants of <malloc.h>.
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
NEVER = 2**31 - 1
USUAL = {MMAP_MAX: 65536, MMAP_THRESHOLD: 32 << 20, TRIM_THRESHOLD: 64 << 20}
"""What glibc comes to by itself in a process that has freed blocks of megabytes."""


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Reuse freed memory inside the block (Linux with glibc); it is returned at the end."""
    libc = _glibc()
    if libc is None:
        yield
        return
    libc.mallopt(MMAP_MAX, 0)
    libc.mallopt(TRIM_THRESHOLD, NEVER)
    try:
        yield
    finally:
        reuse_small_blocks()
        return_freed_memory()


def reuse_small_blocks() -> None:
    """Reuse freed blocks of up to 32 MB from the start; glibc by itself comes to it step by step.

    Larger ones are still returned when they are freed.
    """
    libc = _glibc()
    if libc is not None:
        for parameter, value in USUAL.items():
            libc.mallopt(parameter, value)


def return_freed_memory() -> None:
    """Return freed blocks to the system, also those between blocks in use.

    Many aligned blocks of a megabyte, as torch makes them, leave gaps that glibc does not fill again.
    """
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    """The C library, if it is glibc."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None
