"""A command in a pseudo-terminal: what is on its screen, and above it, when the command has ended."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios

import pyte


def screen_after(code: str, columns: int, rows: int = 24, **environment: str) -> list[str]:
    """Run Python code in a terminal of this size; its lines, from the first that scrolled away."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.pop("COLUMNS", None)
        os.environ.pop("LINES", None)
        os.environ.update(TERM="xterm-256color", **environment)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.execv(sys.executable, [sys.executable, "-c", code])
    screen = pyte.HistoryScreen(columns, rows, history=10_000, ratio=1)
    stream = pyte.ByteStream(screen)
    while written := _read(terminal):
        stream.feed(written)
    os.waitpid(child, 0)
    os.close(terminal)
    above = ["".join(line[column].data for column in range(columns)) for line in screen.history.top]
    return [line.rstrip() for line in (*above, *screen.display)]


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux: the other end is closed
        return b""
