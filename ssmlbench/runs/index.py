"""An index of finished runs in the cache: the content of each result.json when it was last verified.

It only saves time: an entry is used while its file is the same on disk (inode, size and time); every other
result is read from its folder. The index can be deleted at any time, and a damaged one is ignored.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ssmlbench
from ssmlbench.core.files import Stamp, discard
from ssmlbench.core.paths import cache_root
from ssmlbench.core.sealed_files import INDEX
from ssmlbench.core.spec import FIELDS, RunSpec
from ssmlbench.runs.schema import Result

VERSION = 2
"""Raised when the table changes; an index of another version is a file of another name."""

INDEXED_RUNS = 200
"""The least runs of a folder with an index: reading fewer takes no longer than opening one."""


class RunIndex:
    """The results of one results folder, as they were when they were last read."""

    def __init__(self, root: Path):
        # The fields of a spec decide which results can be read, and entries leave their defaults out:
        # other fields or defaults need another index.
        defaults = RunSpec("", "").as_dict()
        key = json.dumps([str(root.resolve()), VERSION, ssmlbench.__version__, defaults])
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

    def get(self, path: str, now: Stamp) -> tuple[RunSpec, Result] | None:
        """The spec and result of a run whose file is as it was; None if it has to be read."""
        known = self._known.get(path)
        if known is None or known[0] != now:
            return None
        spec, result = json.loads(known[1])
        return RunSpec.from_dict(spec), result

    def put(self, path: str, now: Stamp, spec: RunSpec, result: Mapping[str, Any]) -> None:
        """Keep a result that was read and verified; of the spec, what is not its field's default."""
        values = {
            name: value
            for name, value in spec.as_dict().items()
            if value != (default := FIELDS[name].default) or type(value) is not type(default)
        }
        self._new[path] = now, json.dumps([values, result], separators=(",", ":"))

    def save(self) -> None:
        """Write new entries. If that fails, the next reader reads the results again."""
        if not self._new:
            return
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self._write()
        except (OSError, sqlite3.OperationalError):  # locked, read-only or full
            return
        except sqlite3.DatabaseError:
            discard(self.file)  # damaged: the next reader makes a new one

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
