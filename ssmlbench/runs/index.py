"""An index of finished runs in the cache: what result.json held when it was last read and verified.

It only saves reading: an entry counts while its file is the same on disk (inode, size and time), and
everything else is read from the folders. It can be deleted at any time; one that cannot be used is
left out.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import ssmlbench
from ssmlbench.core.paths import cache_root
from ssmlbench.core.sealed_files import INDEX
from ssmlbench.core.spec import FIELDS

VERSION = 1
"""Raised when the table changes; an index of another version is a file of another name."""

WORTH_IT = 200
"""Runs below which reading the folders takes no longer than opening an index."""

Stamp = tuple[int, int, int]


def file_stamp(file: str) -> Stamp:
    """What changes when a file is written again."""
    found = os.stat(file)  # noqa: PTH116 (a Path takes three times as long)
    return found.st_ino, found.st_size, found.st_mtime_ns


class RunIndex:
    """The results of one results folder, as they were when they were last read."""

    def __init__(self, root: Path):
        # What a spec may hold decides which results can be read: another list, another index.
        key = json.dumps([str(root.resolve()), VERSION, ssmlbench.__version__, list(FIELDS)])
        name = hashlib.sha256(key.encode()).hexdigest()[:16]
        self.file = cache_root() / INDEX / f"{name}.sqlite"
        self._known: dict[str, tuple[Stamp, str]] = {}
        self._new: dict[str, tuple[Stamp, str]] = {}

    def open(self) -> None:
        """Read the entries; without any if the file is missing, damaged or locked."""
        if not self.file.is_file():
            return
        try:
            with sqlite3.connect(f"file:{self.file}?mode=ro", uri=True, timeout=1) as opened:
                rows = opened.execute("SELECT path, inode, size, time, digest, body FROM runs")
                self._known = {
                    path: ((inode, size, time), body)
                    for path, inode, size, time, digest, body in rows
                    if _digest(path, body) == digest
                }
        except (sqlite3.Error, TypeError, ValueError):
            self._known = {}

    def get(self, path: str, now: Stamp) -> dict[str, Any] | None:
        """The result of a run whose file is as it was; None if it has to be read."""
        known = self._known.get(path)
        if known is None or known[0] != now:
            return None
        values: dict[str, Any] = json.loads(known[1])
        return values

    def put(self, path: str, now: Stamp, values: dict[str, Any]) -> None:
        """Keep a result that was read and verified."""
        self._new[path] = now, json.dumps(values, separators=(",", ":"))

    def save(self) -> None:
        """Write what is new. Nothing depends on it: where that fails, the next reader reads again."""
        if not self._new:
            return
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self._write()
        except (OSError, sqlite3.OperationalError):  # locked, read-only or full
            return
        except sqlite3.DatabaseError:
            self.file.unlink(missing_ok=True)  # damaged: the next reader makes a new one

    def _write(self) -> None:
        rows = [(path, *now, _digest(path, body), body) for path, (now, body) in self._new.items()]
        connection = sqlite3.connect(self.file, timeout=5)
        try:
            with connection:
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS runs (path TEXT PRIMARY KEY, inode INTEGER, "
                    "size INTEGER, time INTEGER, digest BLOB, body TEXT)"
                )
                connection.executemany(
                    "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?)", rows
                )
        finally:
            connection.close()


def _digest(path: str, body: str) -> bytes:
    return hashlib.sha256(f"{path}\0{body}".encode()).digest()[:12]
