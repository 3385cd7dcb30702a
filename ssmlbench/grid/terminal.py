"""A terminal that only the display writes to: other output appears as lines above the table.

A live table is redrawn by moving the cursor up. A line that a worker process, a library or a plugin's
`print` writes in between would move the cursor too, and spoil the table.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable
from typing import Self

from ssmlbench.core.console import Console

STREAMS = (1, 2)
"""Standard output and standard error, which child processes inherit."""


class OwnTerminal:
    """Use as a context manager while a table is live; `write` gets every foreign line."""

    def __init__(self, console: Console, write: Callable[[str], None]):
        self._console = console
        self._write = write
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        sys.stdout.flush()
        sys.stderr.flush()
        self._file = self._console.file
        self._real = [os.dup(stream) for stream in STREAMS]
        self._screen = os.fdopen(os.dup(STREAMS[0]), "w", encoding=self._console.encoding)
        self._console.file = self._screen
        self._read, write = os.pipe()
        for stream in STREAMS:
            os.dup2(write, stream)
        os.close(write)
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for stream, real in zip(STREAMS, self._real, strict=True):
            os.dup2(real, stream)
            os.close(real)
        self._stopped.set()
        self._thread.join()
        os.close(self._read)
        self._console.file = self._file
        self._screen.close()

    def _pass_on(self) -> None:
        """Hand over whole lines; an unfinished last line comes when the display ends."""
        rest = b""
        while True:
            ready = select.select([self._read], [], [], 0.1)[0]
            if not ready and self._stopped.is_set():  # a child may hold its end open for longer
                break
            output = os.read(self._read, 65536) if ready else None
            if output == b"":
                break
            *lines, rest = (rest + (output or b"")).split(b"\n")
            for line in lines:
                self._hand_over(line)
        self._hand_over(rest)

    def _hand_over(self, line: bytes) -> None:
        # A progress bar redraws its line after each \r: only its last state is shown.
        text = line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace").rstrip()
        if text:
            self._write(text)


def owns_terminal(console: Console) -> bool:
    """Whether the console writes to this process's terminal, which other processes may write to."""
    try:
        return console.is_terminal and os.isatty(STREAMS[0]) and console.file.fileno() == STREAMS[0]
    except (OSError, ValueError, AttributeError):  # a text buffer has no descriptor
        return False
