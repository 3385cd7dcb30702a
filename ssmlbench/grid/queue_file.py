"""The runs a grid still has before it, told to the results folder: one small file a grid.

`results/.queue/<grid>.json`, written when the runs are handed to an engine and taken away when the
grid ends. A grid that was killed holds its lock no longer: what it had before it is not queued.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from ssmlbench.core.files import read_json, write_atomically
from ssmlbench.core.spec import RunSpec
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.heartbeat import KeepAlive, is_alive


@dataclass(frozen=True)
class Queued:
    """One run of a grid's file."""

    folder: Path
    name: str  # the method with the hyper-parameters that are not its defaults
    epochs: int
    engine: str
    since: float
    job: str = ""  # Slurm's name for it
    host: str = ""


@contextmanager
def queued(results: Path, specs: Sequence[RunSpec], engine: str) -> Iterator[None]:
    """Tell of these runs as long as this process is in the block."""
    sweep(results)
    file = queue_folder(results) / f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(file.with_suffix(".lock"))
    with lock:
        write_queue(file, results, specs, engine)
        try:
            with KeepAlive(file):
                yield
        finally:
            remove_queue(file)


def write_queue(
    file: Path,
    results: Path,
    specs: Sequence[RunSpec],
    engine: str,
    jobs: Sequence[str] | None = None,
    **facts: Any,
) -> None:
    runs = [
        {
            "folder": str(RunFolder.of(results, spec).path.relative_to(results)),
            "name": spec.variant,
            "epochs": spec.epochs,
            "job": job,
        }
        for spec, job in zip(specs, jobs or [""] * len(specs), strict=True)
    ]
    told = {"engine": engine, "host": socket.gethostname(), "time": time.time(), "runs": runs}
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, json.dumps({**told, **facts}))


def read_queues(results: Path) -> dict[Path, Queued]:
    """Every run that a grid still alive has told of, by its folder."""
    found = {}
    for file, told in _files(results):
        if not _alive(file, told):
            continue
        for run in told["runs"]:
            folder = results / run["folder"]
            found[folder] = Queued(
                folder,
                run["name"],
                run["epochs"],
                told["engine"],
                told["time"],
                run["job"],
                told["host"],
            )
    return found


def sweep(results: Path) -> None:
    """Take away what grids that were killed left, and job arrays of which every run is made."""
    for file, told in _files(results):
        made = all((results / run["folder"] / "result.json").is_file() for run in told["runs"])
        if made or not _alive(file, told):
            remove_queue(file)


def queue_folder(results: Path) -> Path:
    return results / ".queue"


def _files(results: Path) -> list[tuple[Path, dict[str, Any]]]:
    files = sorted(queue_folder(results).glob("*.json"))
    return [(file, told) for file in files if (told := read_json(file)) is not None]


def _alive(file: Path, told: Mapping[str, Any]) -> bool:
    if told["engine"] == "slurm":  # submit and exit: the runs' own folders tell the rest
        return True
    return is_alive(file.with_suffix(".lock"), file, told["host"])


def remove_queue(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.with_suffix(".lock").unlink(missing_ok=True)
    if not any(file.parent.iterdir()):
        file.parent.rmdir()
