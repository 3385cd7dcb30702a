"""Files that show that a process is alive: it touches them every few seconds."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

BEAT_SECONDS = 20.0
FRESH_SECONDS = 90.0
"""A file that was not touched for longer belongs to a process that has ended."""
FUTURE_SECONDS = 3600.0
"""A time that is further ahead comes from a clock that was set back since, not from another host's."""


class KeepAlive:
    """Touches a file every few seconds while the process lives: use as a context manager."""

    def __init__(self, file: Path):
        self.file = file
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._touch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _touch(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            with suppress(OSError):
                os.utime(self.file)


def is_fresh(file: Path) -> bool:
    """Whether the file was touched a short time ago, by the clocks of both hosts."""
    try:
        return -FUTURE_SECONDS < time.time() - file.stat().st_mtime < FRESH_SECONDS
    except OSError:
        return False
