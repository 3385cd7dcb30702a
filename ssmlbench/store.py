"""The results folder: one folder a run, finished if and only if its result.json is there.

Plain files in a fixed layout: two machines can write one shared folder, and results merge by copying.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout

from ssmlbench.errors import UserError
from ssmlbench.spec import RunSpec


@dataclass(frozen=True)
class RunFolder:
    """results/<dataset>/<regime>-<π>/<method>/<seed>-<hash>/"""

    path: Path

    @classmethod
    def of(cls, results: Path, spec: RunSpec) -> RunFolder:
        parts = (spec.dataset, spec.regime_label, spec.method, f"{spec.seed}-{spec.hash}")
        return cls(Path(results).joinpath(*parts))

    spec_file = property(lambda self: self.path / "spec.json")
    scores_file = property(lambda self: self.path / "scores.safetensors")
    history_file = property(lambda self: self.path / "history.csv")
    result_file = property(lambda self: self.path / "result.json")
    checkpoint_file = property(lambda self: self.path / "checkpoint.safetensors")
    progress_file = property(lambda self: self.path / "progress.json")  # while it is made
    error_file = property(lambda self: self.path / "error.json")  # until it is made
    lock_file = property(lambda self: self.path / ".lock")

    @property
    def finished(self) -> bool:
        return self.result_file.is_file()

    @contextmanager
    def claim(self, waits: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the run for this process; the lock of a killed process is free at once.

        waits: called once, if another process holds it and this one has to wait.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.lock_file)
            acquire_telling(lock, waits)
        except OSError as error:
            raise UserError(
                f"cannot write to {self.path}: {error.strerror or error}; choose another folder "
                "with --results"
            ) from None
        try:
            yield
        finally:
            lock.release()
            if self.finished:
                self.lock_file.unlink(missing_ok=True)

    def record_failure(self, spec: RunSpec, error: str, trace: str = "") -> None:
        """Leave what went wrong for `status`, and for whoever reads the folder."""
        facts = {
            "error": error,
            "traceback": trace,
            "time": time.time(),
            "attempts": (read_json(self.error_file) or {}).get("attempts", 0) + 1,
            "host": socket.gethostname(),
        }
        with suppress(OSError):  # where nothing can be written, that is the error itself
            self.path.mkdir(parents=True, exist_ok=True)
            write_atomically(self.spec_file, json.dumps(spec.as_dict(), indent=1))
            write_atomically(self.error_file, json.dumps(facts, indent=1))
            self.progress_file.unlink(missing_ok=True)

    def remove_if_empty(self, below: Path) -> None:
        """Take away a folder in which nothing was written, and the empty ones above it."""
        self.lock_file.unlink(missing_ok=True)
        folder = self.path
        while folder != below and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent


def temporary_beside(file: Path) -> Path:
    """A name in the same folder, so that the rename that ends a write is atomic."""
    return file.with_name(f".{file.name}.{os.getpid()}.part")


def write_atomically(file: Path, content: str | bytes) -> None:
    unfinished = temporary_beside(file)
    try:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(unfinished, file)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


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
    """Does a living process hold the lock? (Asked by taking it for a moment.)"""
    if not lock_file.exists():
        return False
    try:
        with FileLock(lock_file, timeout=0):
            return False
    except Timeout:
        return True
    except OSError:  # another user's: no telling
        return False


@dataclass(frozen=True)
class Finished:
    """One finished run, read back."""

    spec: RunSpec
    result: dict[str, Any]
    folder: Path

    @property
    def finished_at(self) -> str:
        """ISO time in UTC: the run's own word, or its file's where an older run has none."""
        if said := self.result.get("made_with", {}).get("finished"):
            return str(said)
        written = (self.folder / "result.json").stat().st_mtime
        return datetime.fromtimestamp(written, UTC).isoformat(timespec="milliseconds")


def read_finished(roots: Iterable[Path]) -> tuple[list[Finished], list[str]]:
    """All finished runs below the roots, and a line for every result that cannot be read.

    The same run found below two roots counts once: its folder's name has its hash.
    """
    runs: dict[str, Finished] = {}
    complaints = []
    for root in map(Path, roots):
        if not root.is_dir():
            raise UserError(f"no results folder at {root}; `ssmlbench run` makes one")
        with _kept_without_collection():
            for place in run_places(root):
                try:
                    run = _read(root, place)
                except FileNotFoundError:
                    continue  # not finished
                except (OSError, ValueError, KeyError, TypeError) as error:
                    complaints.append(
                        f"{root / place / 'result.json'}: not a result of ssmlbench "
                        f"({type(error).__name__}), left out"
                    )
                    continue
                runs.setdefault(place, run)
    return list(runs.values()), complaints


def run_places(root: Path) -> list[str]:
    """The paths of all run folders below the root, sorted. Globbing takes three times as long."""
    places = [""]
    for _ in ("data set", "regime", "method", "run"):
        below = []
        for place in places:
            with os.scandir(root / place) as entries:
                start = f"{place}/" if place else ""
                below += [
                    f"{start}{entry.name}"
                    for entry in entries
                    if entry.is_dir() and entry.name[0] != "."
                ]
        places = below
    return sorted(places)


def _read(root: Path, place: str) -> Finished:
    with open(f"{root}/{place}/result.json", "rb") as stream:
        result = json.loads(stream.read())
    if not {"map", "hamming"} <= set(result["metrics"]["threshold"]["default"]):
        raise KeyError("metrics")
    return Finished(RunSpec.from_dict(result["spec"]), result, root / place)


@contextmanager
def _kept_without_collection() -> Iterator[None]:
    """Thousands of results are made to stay: looking for garbage among them, now and whenever a
    table is made later, would be a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
