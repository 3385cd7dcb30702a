"""Small files written whole or not at all, read back, and locked."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from filelock import BaseFileLock, FileLock, Timeout

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    R = TypeVar("R", bound=DataclassInstance)


def temporary_beside(file: Path) -> Path:
    """A name in the same folder, so that the rename that ends a write is atomic."""
    return file.with_name(f".{file.name}.{os.getpid()}.part")


@contextmanager
def atomic(file: Path) -> Iterator[Path]:
    """Write a file whole or not at all: fill the path given, which is renamed to `file` at the end."""
    unfinished = temporary_beside(file)
    try:
        yield unfinished
        unfinished.replace(file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def write_atomically(file: Path, content: str | bytes) -> None:
    """Write text (UTF-8) or bytes to a file, whole or not at all."""
    with atomic(file) as unfinished:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)


def read_json(file: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if the file is missing, incomplete or holds something else."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return values if isinstance(values, dict) else None


def read_record(file: Path, record: type[R]) -> R | None:
    """A dataclass from a JSON file, whatever version wrote it; None as for `read_json`.

    Every field needs a default. It is kept where the file lacks the field or has another type there;
    a default of None takes any number. What the dataclass does not know is ignored.
    """
    values = read_json(file)
    return None if values is None else parse_record(values, record)


def parse_record(values: Mapping[str, Any], record: type[R]) -> R:
    """A dataclass from a JSON object, as `read_record` reads it."""
    defaults = record()
    known = {
        field.name: values[field.name]
        for field in dataclasses.fields(record)
        if field.name in values and _fits(values[field.name], getattr(defaults, field.name))
    }
    return record(**known)


def _fits(value: object, default: object) -> bool:
    if default is None or type(default) is float:
        return type(value) in (int, float)
    return type(value) is type(default)


def acquire_telling(lock: BaseFileLock, waits: Callable[[], None]) -> None:
    """Acquire a lock however long it takes; `waits` is called once if it is not free at once."""
    try:
        lock.acquire(timeout=0)
    except Timeout:
        waits()
        lock.acquire(timeout=-1)


def is_held(lock_file: Path) -> bool:
    """Whether a living process holds the lock; it is taken for a moment to find out."""
    if not lock_file.exists():
        return False
    try:
        with FileLock(lock_file, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # another user's file: not known
        return False
