"""Small files written whole or not at all, read back, and locked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout


def temporary_beside(file: Path) -> Path:
    """A name in the same folder, so that the rename that ends a write is atomic."""
    return file.with_name(f".{file.name}.{os.getpid()}.part")


@contextmanager
def atomic(file: Path) -> Iterator[Path]:
    """Write a file whole or not at all: fill the path given, which is renamed to `file` at the end."""
    unfinished = temporary_beside(file)
    try:
        yield unfinished
        os.replace(unfinished, file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def write_atomically(file: Path, content: str | bytes) -> None:
    """Write text (UTF-8) or bytes to a file, whole or not at all."""
    with atomic(file) as unfinished:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)


def read_json(file: Path) -> dict[str, Any] | None:
    """What a file of ours says; None where it is not there or not whole."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def acquire_telling(lock: BaseFileLock, waits: Callable[[], None]) -> None:
    """Acquire a lock however long it takes; `waits` is called once if it is not free at once."""
    try:
        lock.acquire(timeout=0)
    except Timeout:
        waits()
        lock.acquire(timeout=-1)


def is_held(lock_file: Path) -> bool:
    """Does a living process hold the lock? (GridRequest by taking it for a moment.)"""
    if not lock_file.exists():
        return False
    try:
        with FileLock(lock_file, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # another user's: no telling
        return False
