"""Freed memory is reused inside the block, and returned at its end."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import numpy as np
import pytest

from ssmlbench.core import freed_memory
from ssmlbench.core.freed_memory import freed_memory_kept

BYTES = 128 << 20
PAGES = BYTES // os.sysconf("SC_PAGESIZE")

only_glibc = pytest.mark.skipif(freed_memory._glibc() is None, reason="not glibc")


def touch() -> int:
    """Make, fill and free a large block; how many pages the system had to clear for it."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.empty(BYTES, dtype=np.uint8).fill(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE")


@only_glibc
def test_a_large_block_is_made_of_freed_memory() -> None:
    with freed_memory_kept():
        touch()
        assert max(touch(), touch()) < PAGES // 100


@only_glibc
def test_the_memory_is_returned_at_the_end() -> None:
    before = resident()
    with freed_memory_kept():
        touch()
        assert resident() - before > BYTES // 2
    assert resident() - before < BYTES // 2
    touch()
    assert resident() - before < BYTES // 2  # and kept no longer


def test_without_glibc_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_memory.sys, "platform", "darwin")
    with freed_memory_kept():
        assert freed_memory._glibc() is None
