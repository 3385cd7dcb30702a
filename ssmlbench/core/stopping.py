"""Handles SIGTERM in the processes of a run, and the end of a process's parent.

A training process ends at once or, with unsaved work, at its next safe point: between two batches, where no
message is half sent. The process that asked for the runs lets them save their state, as after Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_CODE = 128 + signal.SIGTERM
"""The exit code of a process that SIGTERM stopped, as in a shell."""


class Stopped(KeyboardInterrupt):
    """The process was asked to stop."""


class _State:
    requested = False  # SIGTERM was received
    unsaved = False  # a stop at once would lose work
    raised = False  # SIGTERM has raised Stopped in `sigterm_raises`


_state = _State()


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Raise Stopped in this block on SIGTERM, unless another handler is set."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    _state.raised = False
    signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    except KeyboardInterrupt:
        if _state.raised:  # Ray raises a KeyboardInterrupt of its own instead
            raise Stopped from None
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def keeping_sigterm_handler() -> Iterator[None]:
    """Keep this process's handler of SIGTERM while a library starts that sets its own: Ray does.

    Python may still name our handler when native code has replaced it.
    """
    ours = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit as ended:  # what Ray's handler raises
        if ours is _raise and ended.code == signal.SIGTERM:
            raise Stopped from None
        raise
    finally:
        if ours is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, ours)


def _raise(number: int, frame: FrameType | None) -> None:
    _state.raised = True
    raise Stopped


def stop_on_sigterm() -> None:
    """Stop this training process on SIGTERM."""
    signal.signal(signal.SIGTERM, _request)


def ignore_sigterm() -> None:
    """Ignore SIGTERM: another process ends this one."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def has_unsaved_work(unsaved: bool) -> None:
    """Set whether a stop has to wait for a safe point, where the work is saved."""
    _state.unsaved = unsaved


def safe_point() -> None:
    """Raise Stopped if this process was asked to stop."""
    if _state.requested:
        raise Stopped


def _request(number: int, frame: FrameType | None) -> None:
    if not _state.unsaved:
        os._exit(EXIT_CODE)
    _state.requested = True


class EndsWithParent(threading.Thread):
    """Ends this process when its parent ends, whatever it imports or waits for."""

    def __init__(self, parent: int):
        super().__init__(daemon=True)
        self._parent = parent
        self._done = threading.Event()
        self.start()

    def run(self) -> None:
        """Look after the parent until `stop` is called."""
        while not self._done.wait(0.2):
            if os.getppid() != self._parent:
                os._exit(1)

    def stop(self) -> None:
        """Look no more; afterwards there is no thread, and the process may fork."""
        self._done.set()
        self.join()
