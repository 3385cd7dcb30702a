"""The state of every run of a results folder, read from the folder without calling an engine.

A run is done if result.json is there. Otherwise progress.json, error.json and the lock decide.
Files of newer or older versions are read as far as they can be.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ssmlbench.core.errors import DamageWarning, UserError
from ssmlbench.core.files import read_record
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.queue_file import Queued, read_queues
from ssmlbench.runs.finished import read_spec, run_paths
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.heartbeat import RunProgress, is_alive

STATES = ("running", "queued", "failed", "stopped", "done")


@dataclass(frozen=True)
class RunState:
    """One run and its state."""

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
    note: str = ""  # why its spec cannot be read

    def as_dict(self) -> dict[str, Any]:
        """The state as JSON takes it."""
        return {**asdict(self), "folder": str(self.folder)}


@dataclass(frozen=True)
class Failure:
    """The fields of error.json; the defaults are for fields that another version did not write."""

    error: str = "unknown"
    traceback: str = ""
    attempts: int = 1
    host: str = ""
    time: float = 0.0


def read_states(roots: Iterable[Path]) -> list[RunState]:
    """Every run below the roots, and those that are queued and have no folder yet."""
    states = []
    for root in map(Path, roots):
        if not root.is_dir():
            raise UserError(f"no results folder at {root}; `ssmlbench run` makes one")
        waiting = read_queues(root)
        for path in (root / relative for relative in run_paths(root, _warn)):
            try:
                state = _state(path, waiting.pop(path, None) if waiting else None)
            except OSError as error:
                _warn(error)
                continue
            if state is not None:
                states.append(state)
        states += [_queued_state(entry) for entry in waiting.values()]
    return states


def _warn(error: OSError) -> None:
    """Say which folder or file cannot be read: the other runs are shown."""
    text = f"{error.filename}: left out, cannot be read ({error.strerror})"
    warnings.warn(text, DamageWarning, stacklevel=2)


def state_of(results: Path, spec: RunSpec) -> RunState | None:
    """The state of one run; None if it has no folder."""
    return _state(RunFolder.of(results, spec).path, None)


def _state(path: Path, queued: Queued | None) -> RunState | None:
    if os.path.lexists(f"{path}/result.json"):  # first: most runs are done, and listing is slower
        return _run_state(path, "done")
    names = _names(path)
    if "result.json" in names:  # in a folder that can be listed, and no more
        return _run_state(path, "done")
    progress = error = None
    if "progress.json" in names:
        progress = read_record(path / "progress.json", RunProgress)
    if "error.json" in names:
        error = read_record(path / "error.json", Failure) or Failure()
    if progress is not None and _alive(path, progress):
        return _running(path, progress)
    # A run that started or failed after it was queued is no longer queued.
    last = max(progress.time if progress else 0.0, error.time if error else 0.0)
    if queued is not None and last < queued.since:
        return _queued_state(queued)
    if progress is not None:
        return _stopped(path, progress)
    if error is not None:
        return _run_state(
            path,
            "failed",
            where=error.host,
            error=error.error,
            traceback=error.traceback,
            attempts=error.attempts,
        )
    if "checkpoint.safetensors" in names:
        return _run_state(path, "stopped")
    return None


def _alive(path: Path, progress: RunProgress) -> bool:
    folder = RunFolder(path)
    return is_alive(folder.lock_file, folder.progress_file, progress.host)


def _running(path: Path, progress: RunProgress) -> RunState:
    return _run_state(
        path,
        "running",
        epoch=progress.epoch,
        epochs=progress.epochs,
        eta=progress.eta(),
        doing=progress.doing,
        where=progress.host,
    )


def _stopped(path: Path, progress: RunProgress) -> RunState:
    # Epochs after the last checkpoint are lost. An older version saved every epoch.
    saved = progress.epoch if progress.saved is None else progress.saved
    epoch = saved if RunFolder(path).checkpoint_file.exists() else 0
    return _run_state(path, "stopped", epoch=epoch, epochs=progress.epochs, where=progress.host)


def _queued_state(entry: Queued) -> RunState:
    where = f"{entry.engine} {entry.job}" if entry.job else entry.engine
    return _run_state(entry.folder, "queued", name=entry.name, epochs=entry.epochs, where=where)


def _run_state(path: Path, state: str, name: str = "", **facts: Any) -> RunState:
    """A state with the names in the run's path; spec.json has the method's hyper-parameters."""
    dataset, regime, method = path.parts[-4:-1]
    seed, _, digest = path.name.partition("-")
    note = ""
    if not name and state != "done":
        spec = read_spec(path / "spec.json")
        if isinstance(spec, RunSpec):
            name = spec.variant
        elif spec.file.exists():
            note = f"spec.json: {spec.reason}"
    return RunState(
        state=state,
        folder=path,
        dataset=dataset,
        regime=regime,
        method=name or method,
        seed=seed,
        hash=digest,
        note=note,
        **facts,
    )


def _names(folder: Path) -> set[str]:
    """The names in a run's folder; none if the folder was removed meanwhile, as after a failure."""
    try:
        return set(os.listdir(folder))  # noqa: PTH208 (a Path makes one of each)
    except (FileNotFoundError, NotADirectoryError):
        return set()
