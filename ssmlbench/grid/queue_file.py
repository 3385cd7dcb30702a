"""The queue files, one for each grid: the runs that it still has to make.

`results/.queue/<grid>.json` is written when the runs are handed to an engine and deleted when the
grid ends. A grid that was killed no longer holds its lock, so its runs do not count as queued.

The grid's process and a run's process each have a file and a lock of their own. One of them may be
killed while the other continues, and a run can be made on another machine than its grid.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ssmlbench.core.files import parse_record, read_record, write_json
from ssmlbench.core.keep_alive import KeepAlive
from ssmlbench.core.locks import Lock
from ssmlbench.core.spec import RunSpec
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.heartbeat import is_alive

RUN_DEPTH = 4
"""Folders from the results folder to a run: data set, regime, method, seed and hash."""


@dataclass(frozen=True)
class QueuedRun:
    """One run of a queue file."""

    folder: str = ""  # below the results folder
    name: str = ""  # the method with the hyper-parameters that are not its defaults
    epochs: int = 0
    job: str = ""  # the engine's name for it


@dataclass(frozen=True)
class QueueFile:
    """The fields of a queue file; the defaults are for fields that another version did not write."""

    engine: str = ""
    detached: bool = False  # the jobs outlive the process that wrote the file
    host: str = ""
    time: float = 0.0
    runs: list[Any] = field(default_factory=list)  # each as QueuedRun
    facts: dict[str, Any] = field(default_factory=dict)  # further values of the engine

    def entries(self) -> list[QueuedRun]:
        """The runs that have a folder."""
        runs = [parse_record(run, QueuedRun) for run in self.runs if isinstance(run, dict)]
        return [run for run in runs if len(Path(run.folder).parts) == RUN_DEPTH]


@dataclass(frozen=True)
class Queued:
    """A run that waits for its turn."""

    folder: Path
    name: str
    epochs: int
    engine: str
    since: float
    job: str


@contextmanager
def queued(results: Path, specs: Sequence[RunSpec], engine: str) -> Iterator[None]:
    """List these runs as queued while this process is in the block."""
    sweep(results)
    file = queue_folder(results) / f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}.json"
    lock = Lock(file.with_suffix(".lock"))
    try:
        lock.acquire()
        write_queue(file, results, specs, engine)
        with KeepAlive(file):
            yield
    finally:
        lock.release()  # the name is of this process only: nobody waits for it
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
    """Write a queue file. jobs: the engine's name for each run's job; the rest as in `QueueFile`."""
    runs = [
        asdict(
            QueuedRun(
                str(RunFolder.of(results, spec).path.relative_to(results)),
                spec.variant,
                spec.epochs,
                job,
            )
        )
        for spec, job in zip(specs, jobs or [""] * len(specs), strict=True)
    ]
    queue = QueueFile(engine, detached, socket.gethostname(), time.time(), runs, facts)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, asdict(queue), durable=False)


def read_queues(results: Path) -> dict[Path, Queued]:
    """Every run that a living grid still has to make, by its folder."""
    runs = {}
    for file, queue in queue_files(results):
        if _alive(file, queue):
            for run in queue.entries():
                folder = results / run.folder
                runs[folder] = Queued(
                    folder, run.name, run.epochs, queue.engine, queue.time, run.job
                )
    return runs


def sweep(results: Path) -> None:
    """Delete the files of killed grids, and of job arrays whose runs are all finished."""
    for file, queue in queue_files(results):
        runs = queue.entries()
        finished = all((results / run.folder / "result.json").is_file() for run in runs)
        if (runs and finished) or not _alive(file, queue):
            remove_queue(file)


def queue_files(results: Path) -> list[tuple[Path, QueueFile]]:
    """The queue files of a results folder, and their contents."""
    files = sorted(queue_folder(results).glob("*.json"))
    read = [(file, read_record(file, QueueFile)) for file in files]
    return [(file, queue) for file, queue in read if queue is not None]


def queue_folder(results: Path) -> Path:
    """The folder of the queue files of a results folder."""
    return results / ".queue"


def _alive(file: Path, queue: QueueFile) -> bool:
    # Slurm jobs outlive this process: keep the file; slurm.underway() asks squeue.
    return queue.detached or is_alive(file.with_suffix(".lock"), file, queue.host)


def remove_queue(file: Path) -> None:
    """Delete a queue file, its lock, and the folder if it was the last.

    What cannot be deleted is left to the next grid: the runs of this one are made.
    """
    for leftover in (file, file.with_suffix(".lock")):
        with suppress(OSError):
            leftover.unlink(missing_ok=True)
    with suppress(OSError):  # it holds the file of another grid
        file.parent.rmdir()
