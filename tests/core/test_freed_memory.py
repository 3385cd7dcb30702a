"""Freed memory is reused inside the block, and returned at its end."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import numpy as np
import pytest

from ssmlbench.core import freed_memory
from ssmlbench.core.freed_memory import freed_memory_kept, return_freed_memory, reuse_small_blocks

BYTES = 128 << 20
PAGE = os.sysconf("SC_PAGESIZE")
PAGES = BYTES // PAGE

only_glibc = pytest.mark.skipif(freed_memory._glibc() is None, reason="not glibc")


def touch(size: int = BYTES) -> int:
    """Make, fill and free a block; how many pages the system had to clear for it."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.empty(size, dtype=np.uint8).fill(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * PAGE


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


@only_glibc
def test_small_blocks_are_reused_and_large_ones_returned() -> None:
    reuse_small_blocks()
    small, large = 8 << 20, 64 << 20
    before = resident()
    touch(small)
    assert max(touch(small), touch(small)) < small // PAGE // 10
    touch(large)
    assert resident() - before < large // 2


@only_glibc
def test_gaps_between_blocks_in_use_are_returned() -> None:
    with freed_memory_kept():
        before = resident()
        blocks = [np.ones(1 << 20, dtype=np.uint8) for _ in range(128)]
        del blocks[:-1]  # the last one keeps the heap from being shortened
        assert resident() - before > 64 << 20
        return_freed_memory()
        assert resident() - before < 32 << 20
        assert blocks[0].all()


def test_without_glibc_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_memory.sys, "platform", "darwin")
    reuse_small_blocks()
    return_freed_memory()
    with freed_memory_kept():
        assert freed_memory._glibc() is None
