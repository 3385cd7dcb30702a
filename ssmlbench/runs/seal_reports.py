"""Reports of the seal to the judge: what it refused, and what readers of the result should know.

They have a pipe of their own, on which a report is one write that the system never divides (PIPE_BUF bytes
at most). So threads and forked processes need no lock, and no report can cut a message of training in two.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection

from ssmlbench.core.remarks import Remarks

REFUSED, NOTE = b"!", b"-"
"""The first byte of a report: an attempt at what is sealed, or a remark."""
STARTED = "started another program"
"""The beginning of a remark that is kept whatever else a plugin writes to the pipe."""
REFUSED_CODE = 97
"""The exit code of a process that attempted it, should a plugin have taken its pipe away."""


class SealReports:
    """The pipe as a training process sees it."""

    def __init__(self, pipe: Connection):
        self._pipe = pipe
        self.note = _sender(pipe, NOTE)
        """Adds a remark for readers of the result."""

    def alarm(self) -> Callable[[str], None]:
        """The function that reports an attempt at what is sealed, and ends the process.

        What it uses is bound here: a plugin may change modules, and this object.
        """
        send, end, code = _sender(self._pipe, REFUSED), os._exit, REFUSED_CODE

        def report(what: str) -> None:
            try:
                send(what)
            finally:
                end(code)

        return report


def _sender(pipe: Connection, kind: bytes) -> Callable[[str], None]:
    descriptor, write, most = pipe.fileno(), os.write, select.PIPE_BUF - 2
    stat, end, code = os.fstat, os._exit, REFUSED_CODE
    before = stat(descriptor)

    def send(text: str) -> None:
        now = stat(descriptor)
        if (now.st_dev, now.st_ino) != (before.st_dev, before.st_ino):
            end(code)  # a plugin put another file in its place, and nobody would read the report
        line = text.encode(errors="replace").replace(b"\n", b" ")[:most]
        write(descriptor, kind + line + b"\n")

    return send


class ReceivedReports:
    """The reports that the judge has received from the seal of a training process."""

    def __init__(self, pipe: Connection, refused: Callable[[], None]):
        """refused: called at the first report of an attempt."""
        self.attempt = ""
        self.malformed = False  # a plugin wrote something else to the pipe
        self._programs, self._others = Remarks(), Remarks()
        self._pipe = pipe
        self._refused = refused
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    @property
    def notes(self) -> list[str]:
        """The remarks, programs that were started first: there may be more than are kept."""
        return [*self._programs, *self._others]

    def wait(self, seconds: float) -> None:
        """Wait until every process that can report has ended; `seconds` at most."""
        self._thread.join(seconds)

    def _listen(self) -> None:
        with os.fdopen(os.dup(self._pipe.fileno()), "rb") as lines:
            while line := lines.readline(select.PIPE_BUF):
                text = line[1:].decode(errors="replace").rstrip("\n")
                if line.startswith(NOTE) and line.endswith(b"\n"):
                    (self._programs if text.startswith(STARTED) else self._others).add(text)
                    continue
                self.malformed = not line.startswith(REFUSED)
                self.attempt = "" if self.malformed else text
                self._refused()
                return
