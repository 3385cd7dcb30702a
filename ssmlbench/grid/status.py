"""What state every run of a results folder is in, read from the folder alone: no engine is asked.

A run is done if result.json is there. Otherwise progress.json, error.json and the lock tell.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ssmlbench.core.errors import UserError
from ssmlbench.core.files import read_json
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.queue_file import Queued, read_queues
from ssmlbench.runs.finished import run_paths
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.heartbeat import is_alive

STATES = ("running", "queued", "failed", "stopped", "done")


@dataclass(frozen=True)
class RunState:
    """One run, and what is known of it."""

    state: str  # one of STATES
    folder: Path
    dataset: str
    regime: str  # with its π or share
    method: str  # with the hyper-parameters that are not its defaults, where that is known
    seed: str
    hash: str
    epoch: int = 0
    epochs: int = 0
    eta: float | None = None  # seconds
    doing: str = ""
    where: str = ""  # host or job
    error: str = ""
    traceback: str = ""
    attempts: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "folder": str(self.folder)}


def read_states(roots: Iterable[Path]) -> list[RunState]:
    """Every run below the roots, and those that are queued and have no folder yet."""
    states = []
    for root in roots:
        if not Path(root).is_dir():
            raise UserError(f"no results folder at {root}; `ssmlbench run` makes one")
        waiting = read_queues(Path(root))
        for place in run_paths(Path(root)):
            path = Path(root) / place
            state = _state(path, set(os.listdir(path)), waiting.pop(path, None))
            if state is not None:
                states.append(state)
        states += [_of_queue(entry) for entry in waiting.values()]
    return states


def state_of(results: Path, spec: RunSpec) -> RunState | None:
    """The state of one run; None where nothing of it is there."""
    path = RunFolder.of(results, spec).path
    try:
        return _state(path, set(os.listdir(path)), None)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _state(path: Path, names: set[str], queued: Queued | None) -> RunState | None:
    if "result.json" in names:
        return _named(path, "done")
    progress = read_json(path / "progress.json") if "progress.json" in names else None
    error = read_json(path / "error.json") if "error.json" in names else None
    if progress is not None and _alive(path, progress):
        return _running(path, progress)
    # What began or failed since it was queued has had its turn.
    heard = max(told["time"] for told in (progress, error, {"time": 0.0}) if told is not None)
    if queued is not None and heard < queued.since:
        return _of_queue(queued)
    if progress is not None:
        return _stopped(path, progress)
    if error is not None:
        keys = ("error", "traceback", "attempts")
        return _named(path, "failed", where=error["host"], **{key: error[key] for key in keys})
    if "checkpoint.safetensors" in names:
        return _named(path, "stopped")
    return None


def _alive(path: Path, progress: dict[str, Any]) -> bool:
    folder = RunFolder(path)
    return is_alive(folder.lock_file, folder.progress_file, progress["host"])


def _running(path: Path, progress: dict[str, Any]) -> RunState:
    eta = None
    if (pace := progress["seconds_per_epoch"]) is not None:
        since = time.time() - progress["time"]
        eta = max(0.0, (progress["epochs"] - progress["epoch"]) * pace - min(since, pace))
    return _named(
        path,
        "running",
        epoch=progress["epoch"],
        epochs=progress["epochs"],
        eta=eta,
        doing=progress["doing"],
        where=progress["host"],
    )


def _stopped(path: Path, progress: dict[str, Any]) -> RunState:
    # Without a checkpoint the epochs that were made are lost.
    epoch = progress["epoch"] if RunFolder(path).checkpoint_file.exists() else 0
    return _named(path, "stopped", epoch=epoch, epochs=progress["epochs"], where=progress["host"])


def _of_queue(entry: Queued) -> RunState:
    where = f"{entry.engine} {entry.job}" if entry.job else entry.engine
    return _named(entry.folder, "queued", name=entry.name, epochs=entry.epochs, where=where)


def _named(path: Path, state: str, name: str = "", **facts: Any) -> RunState:
    """The facts under the names that the path holds; spec.json is read where they are too few."""
    dataset, regime, method = path.parts[-4:-1]
    seed, _, digest = path.name.partition("-")
    if not name:
        told = None if state == "done" else read_json(path / "spec.json")
        name = RunSpec.from_dict(told).variant if told else method
    return RunState(state, path, dataset, regime, name, seed, digest, **facts)
