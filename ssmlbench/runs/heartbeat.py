"""progress.json: the progress of a run, written at every event and touched in between.

`ssmlbench status` reads it, on any machine that sees the folder. A run never fails because of it.
"""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from ssmlbench.core.eta import EpochTimer, run_eta
from ssmlbench.core.events import (
    CheckpointSaved,
    Decoding,
    Encoding,
    EpochEnded,
    Event,
    Notify,
    Resumed,
    TrainingStarted,
    Waiting,
)
from ssmlbench.core.files import discard, write_atomically
from ssmlbench.core.keep_alive import KeepAlive, is_fresh
from ssmlbench.core.locks import is_held
from ssmlbench.runs.folder import RunFolder


def is_alive(lock_file: Path, touched: Path, host: str) -> bool:
    """Whether the process on that host that holds the lock and touches the file is alive.

    On its own host the lock decides. Seen from another machine a held lock may look free, so that
    there the time of the file decides.
    """
    return is_held(lock_file) or (host != socket.gethostname() and is_fresh(touched))


@dataclass(frozen=True)
class RunProgress:
    """The fields of progress.json; the defaults are for fields that another version did not write."""

    epoch: int = 0
    epochs: int = 0
    doing: str = "starting"
    seconds_per_epoch: float | None = None
    losses: dict[str, float] = field(default_factory=dict)  # by term
    resumed: int | None = None  # the epoch of the checkpoint it continued from
    saved: int | None = None  # the epoch of its last checkpoint
    host: str = ""
    pid: int = 0
    began: float = 0.0  # seconds since the epoch, as `time`
    time: float = 0.0  # of the last event

    def eta(self) -> float | None:
        """Seconds left, judged from now."""
        since = time.time() - self.time
        return run_eta(self.epoch, self.epochs, self.seconds_per_epoch, since)


class Heartbeat:
    """Passes a run's events on to `notify`, and keeps its progress.json up to date."""

    def __init__(self, folder: RunFolder, epochs: int, notify: Notify):
        self._file = folder.progress_file
        self._forward = notify
        self._timer = EpochTimer()
        self._progress = RunProgress(
            epochs=epochs, host=socket.gethostname(), pid=os.getpid(), began=time.time()
        )
        self._keep_alive = KeepAlive(self._file)

    def __enter__(self) -> Self:
        self._write()
        self._keep_alive.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Delete progress.json on return or Exception; keep it on KeyboardInterrupt.

        `status` then says "stopped".
        """
        self._keep_alive.__exit__()
        if kind is None or issubclass(kind, Exception):
            with suppress(OSError):
                discard(self._file)

    def notify(self, event: Event) -> None:
        """Write what the event changes to progress.json, and pass it on."""
        match event:
            case EpochEnded():
                self._timer.tick()
                event = replace(event, seconds_per_epoch=self._timer.seconds_per_epoch)
                self._update(
                    doing="training",
                    epoch=event.epoch,
                    seconds_per_epoch=event.seconds_per_epoch,
                    losses=dict(event.losses),
                )
            case Resumed(epoch):
                self._timer.restart()
                self._update(doing="training", epoch=epoch, resumed=epoch, saved=epoch)
            case CheckpointSaved(epoch):
                self._update(saved=epoch)
            case TrainingStarted():
                self._timer.restart()
                self._update(doing="training")
            case Encoding() | Decoding() | Waiting():
                self._update(doing=event.text)
        self._forward(event)

    def _update(self, **changes: Any) -> None:
        self._progress = replace(self._progress, **changes)
        self._write()

    def _write(self) -> None:
        content = {**asdict(self._progress), "time": time.time()}
        with suppress(OSError):  # a full disk is reported when the checkpoint is written
            write_atomically(self._file, json.dumps(content), durable=False)
