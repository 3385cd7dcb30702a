"""The queue files: which runs a grid still has to make, one small file a grid.

`results/.queue/<grid>.json` is written when the runs are handed to an engine and deleted when the
grid ends. A grid that was killed no longer holds its lock, so its runs do not count as queued.
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
    """One run of a queue file."""

    folder: Path
    name: str  # the method with the hyper-parameters that are not its defaults
    epochs: int
    engine: str
    since: float
    job: str = ""  # Slurm's name for it
    host: str = ""


@contextmanager
def queued(results: Path, specs: Sequence[RunSpec], engine: str) -> Iterator[None]:
    """List these runs as queued while this process is in the block."""
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
    detached: bool = False,
    **facts: Any,
) -> None:
    """Write a queue file.

    jobs: the engine's name for each run's job. detached: the jobs outlive this process, so the file
    stays until the runs are finished or the engine deletes it. facts: what the engine wants to keep.
    """
    runs = [
        {
            "folder": str(RunFolder.of(results, spec).path.relative_to(results)),
            "name": spec.variant,
            "epochs": spec.epochs,
            "job": job,
        }
        for spec, job in zip(specs, jobs or [""] * len(specs), strict=True)
    ]
    queue = {
        "engine": engine,
        "detached": detached,
        "host": socket.gethostname(),
        "time": time.time(),
        "runs": runs,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, json.dumps({**queue, **facts}))


def read_queues(results: Path) -> dict[Path, Queued]:
    """Every run that a living grid still has to make, by its folder."""
    runs = {}
    for file, queue in _files(results):
        if not _alive(file, queue):
            continue
        for run in queue["runs"]:
            folder = results / run["folder"]
            runs[folder] = Queued(
                folder,
                run["name"],
                run["epochs"],
                queue["engine"],
                queue["time"],
                run["job"],
                queue["host"],
            )
    return runs


def sweep(results: Path) -> None:
    """Delete the files of killed grids, and of job arrays whose runs are all finished."""
    for file, queue in _files(results):
        finished = all((results / run["folder"] / "result.json").is_file() for run in queue["runs"])
        if finished or not _alive(file, queue):
            remove_queue(file)


def queue_folder(results: Path) -> Path:
    """Where the queue files of a results folder are."""
    return results / ".queue"


def _files(results: Path) -> list[tuple[Path, dict[str, Any]]]:
    files = sorted(queue_folder(results).glob("*.json"))
    return [(file, queue) for file in files if (queue := read_json(file)) is not None]


def _alive(file: Path, queue: Mapping[str, Any]) -> bool:
    # Slurm jobs outlive this process: keep the file; slurm.underway() asks squeue.
    return queue.get("detached", False) or is_alive(file.with_suffix(".lock"), file, queue["host"])


def remove_queue(file: Path) -> None:
    """Delete a queue file, its lock, and the folder if it was the last."""
    file.unlink(missing_ok=True)
    file.with_suffix(".lock").unlink(missing_ok=True)
    if not any(file.parent.iterdir()):
        file.parent.rmdir()
