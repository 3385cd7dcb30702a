"""What a run tells its folder while it is made: progress.json at every event, touched in between.

`ssmlbench status` reads it, on any machine that sees the folder. A run never fails over it.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ssmlbench.core.eta import EpochTimer
from ssmlbench.core.events import (
    Encoding,
    EpochEnded,
    Event,
    Notify,
    Resumed,
    TrainingStarted,
    Waiting,
)
from ssmlbench.core.files import is_held, write_atomically
from ssmlbench.runs.folder import RunFolder

BEAT_SECONDS = 20.0
FRESH_SECONDS = 90.0
"""A file not touched for so long belongs to a process that is gone."""


class KeepAlive:
    """Touches a file again and again as long as the process lives: use as a context manager."""

    def __init__(self, file: Path):
        self.file = file
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._touch, daemon=True)

    def __enter__(self) -> KeepAlive:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _touch(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            with suppress(OSError):
                os.utime(self.file)


def is_fresh(file: Path) -> bool:
    try:
        return time.time() - file.stat().st_mtime < FRESH_SECONDS
    except OSError:
        return False


def is_alive(lock_file: Path, touched: Path, host: str) -> bool:
    """Is the process there that holds the lock and touches the file, on that host?

    Where the lock can be asked it decides; from another machine it may look free.
    """
    return is_held(lock_file) or (host != socket.gethostname() and is_fresh(touched))


class Heartbeat:
    """Stands between a run and whoever is told of it: `notify` keeps the folder informed too."""

    def __init__(self, folder: RunFolder, epochs: int, notify: Notify):
        self._file = folder.progress_file
        self._forward = notify
        self._timer = EpochTimer()
        self._facts: dict[str, Any] = {
            "epoch": 0,
            "epochs": epochs,
            "doing": "starting",
            "seconds_per_epoch": None,
            "losses": {},
            "resumed": None,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "began": time.time(),
        }
        self._touching = KeepAlive(self._file)

    def __enter__(self) -> Heartbeat:
        self._write()
        self._touching.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Delete progress.json on return or Exception; keep it on KeyboardInterrupt.

        `status` then says "stopped".
        """
        self._touching.__exit__()
        if kind is None or issubclass(kind, Exception):
            self._file.unlink(missing_ok=True)

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
                self._update(doing="training", epoch=epoch, resumed=epoch)
            case TrainingStarted():
                self._timer.restart()
                self._update(doing="training")
            case Encoding() | Waiting():
                self._update(doing=event.text)
        self._forward(event)

    def _update(self, **facts: Any) -> None:
        self._facts |= facts
        self._write()

    def _write(self) -> None:
        with suppress(OSError):  # a full disk is the checkpoint's to report
            write_atomically(self._file, json.dumps({**self._facts, "time": time.time()}))
