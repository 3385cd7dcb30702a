"""What SIGTERM does to the processes of a run.

One that trains ends at once or, with work to save, at its next safe point: between two batches, where no
message is half sent. The one that asked for the runs has them save, as after Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODE = 128 + signal.SIGTERM
"""Of a process that was asked to stop, as a shell has it."""


class Stopped(KeyboardInterrupt):
    """The process was asked to stop."""


class _State:
    requested = False  # SIGTERM has come
    unsaved = False  # there is work that a stop at once would lose


_state = _State()


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Raise Stopped in this block when SIGTERM comes, unless somebody else cares for it."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Stopped


def stop_on_sigterm() -> None:
    """Stop this process, which trains, when SIGTERM comes."""
    signal.signal(signal.SIGTERM, _request)


def ignore_sigterm() -> None:
    """Ignore SIGTERM: this process ends with another one."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def has_unsaved_work(unsaved: bool) -> None:
    """Say whether a stop has to wait for a safe point, where the work is saved."""
    _state.unsaved = unsaved


def safe_point() -> None:
    """Raise Stopped if this process was asked to stop."""
    if _state.requested:
        raise Stopped


def _request(number: int, frame: FrameType | None) -> None:
    if not _state.unsaved:
        os._exit(EXIT_CODE)
    _state.requested = True
