"""The process that trains, as the judge sees it: its messages, its end, and what processes it leaves."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

from ssmlbench.core.errors import RunFailed, RunStopped
from ssmlbench.core.events import Notify
from ssmlbench.core.stopping import EXIT_CODE, Stopped
from ssmlbench.protocol.judge import Judge
from ssmlbench.runs.messages import Malformed, TrainingGone, receive
from ssmlbench.runs.seal_reports import REFUSED_CODE, ReceivedReports
from ssmlbench.runs.train import Assignment, TrainingReport

ADOPTS_ORPHANS = 36
GRACE_SECONDS = 10.0
"""A training process that has closed its pipe is ending; one that takes longer is killed."""
STOP_SECONDS = 20.0
"""The time in which a training process that is asked to stop can save its state; then it is killed."""
KILL_SECONDS = 10.0
"""The time in which processes that fork and leave, over and over, have to be caught."""
ANY_CHILD = 0x40000000
"""`__WALL`: children of a bare `clone`, too, which end without a signal."""
KILLED = -signal.SIGKILL


def adopt_orphans() -> None:
    """Become the parent of processes that the training process leaves behind (Linux)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(ADOPTS_ORPHANS, 1, 0, 0, 0)


def kill_children() -> bool:
    """Kill every child of this process, and orphans that this leaves (Linux); whether none is left.

    All are killed before one is waited for, with their groups: a process that forks and leaves at once is
    otherwise another one whenever its number is read. The lists may be incomplete; `waitpid` is not.
    """
    lists = list(Path("/proc/self/task").glob("*/children"))
    session, until = os.getsid(0), time.monotonic() + KILL_SECONDS
    while lists and not _all_have_ended():
        if time.monotonic() > until:
            return False
        for pid in [int(word) for file in lists for word in _words(file)]:
            with suppress(OSError):
                if os.getsid(pid) != session:  # else the group may be one of the user's
                    os.killpg(os.getpgid(pid), signal.SIGKILL)
                os.kill(pid, signal.SIGKILL)
    return True


def _all_have_ended() -> bool:
    """Whether this process has no child, once those that have ended are waited for."""
    try:
        while os.waitpid(-1, os.WNOHANG | ANY_CHILD)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:  # that thread has ended
        return []


class Violation(RunFailed):
    """Training tried to read labels that are sealed, or to change what judges it."""


class TrainingProcess:
    """The process that trains, as the judge sees it."""

    def __init__(self, pid: int, pipe: Connection, reports: Connection, time_limit: float | None):
        """pipe: of its messages; reports: of its seal."""
        self.pid = pid
        self.pipe = pipe
        self.time_limit = time_limit
        self.timed_out = False
        self.ended_by_judge = False
        self.code: int | None = None
        self._given = self._stopped = False
        self._gone = threading.Event()
        self._left_processes = False
        self._reports = ReceivedReports(reports, self._kill)
        threading.Thread(target=self._reap, daemon=True).start()

    def _reap(self) -> None:
        """Wait until it has ended, and kill its children: one may hold its end of the pipe."""
        with suppress(ChildProcessError):  # the run is being ended: `kill_children` was quicker
            _, status = os.waitpid(self.pid, 0)
            self.code = os.waitstatus_to_exitcode(status)
        self._left_processes = not kill_children()
        self._gone.set()

    def _time_out(self) -> None:
        self.timed_out = True
        self._terminate()
        self.end(STOP_SECONDS)

    def _terminate(self) -> None:
        if not self._gone.is_set():
            with suppress(OSError):
                os.kill(self.pid, signal.SIGTERM)

    def ask_to_stop(self) -> None:
        """Have it save its state and end; if training has not begun, end this process too."""
        self._stopped = True
        if not self._given:
            self.end_at_once()
        self._terminate()

    def end_at_once(self) -> None:
        """Kill it and its children, and end this process."""
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        kill_children()
        os._exit(1)

    def _kill(self) -> None:
        self.ended_by_judge = True
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)

    def allow_plugins(self) -> None:
        """Let it import the plugins: this process holds the run, and no scores are in its folder."""
        with suppress(OSError):  # it has ended
            self.pipe.send_bytes(b"begin")

    def __call__(self, assignment: Assignment, judge: Judge, notify: Notify) -> TrainingReport:
        """Have it train, and handle its messages until it reports the end of training.

        Its process has ended when this returns: the judge then writes scores, which hold test labels, to a
        folder that the process could read.
        """
        try:
            report = self._train(assignment, judge, notify)
        except Exception:
            self.end()
            self._check_reports(judge.spec.method)
            raise
        self.end(GRACE_SECONDS)
        self._check_reports(judge.spec.method)
        if self._left_processes:
            raise RunFailed("its training process left other processes that cannot be ended")
        for note in self._reports.notes:
            judge.note(f"{judge.spec.method} {note}")
        return report

    def _check_reports(self, method: str) -> None:
        """Raise the attempt at what is sealed that was reported, if any."""
        self._reports.wait(GRACE_SECONDS)
        if self._reports.attempt:
            raise Violation(f"{method} {self._reports.attempt}")
        if self._reports.malformed:
            raise Malformed("training sent a message that cannot be read, as if from its seal")
        if self.code == REFUSED_CODE:
            raise Violation(f"{method} tried to open or change what is sealed, and hid the report")

    def _train(self, assignment: Assignment, judge: Judge, notify: Notify) -> TrainingReport:
        alarm = threading.Timer(self.time_limit or 0, self._time_out)
        alarm.daemon = True
        if self.time_limit is not None:
            alarm.start()
        self._given = True
        try:
            content = ForkingPickler.dumps(assignment)
            threading.Thread(target=self._give, args=(content,), daemon=True).start()
            while True:
                message = receive(self.pipe, judge)
                if isinstance(message, TrainingReport):
                    return message
                if message is not None:
                    notify(message)
        except TrainingGone:
            self.end(GRACE_SECONDS)
            if self._stopped:
                raise Stopped from None
            if self.timed_out:
                raise RunStopped(
                    f"took longer than the time limit of {self.time_limit:g} s; with a longer "
                    "--time-limit it continues from its last checkpoint"
                ) from None
            if self.ended_by_judge:
                raise RunStopped(
                    "its training process closed the pipe to the judge and went on: does a plugin "
                    "close files that are not its own?"
                ) from None
            raise RunStopped(_why(self.code)) from None
        finally:
            alarm.cancel()

    def _give(self, content: memoryview) -> None:
        """Send the assignment. In a thread: training may be sending too, more than the pipe holds."""
        with suppress(OSError):  # it has ended; its last messages are still in the pipe
            self.pipe.send_bytes(content)

    def end(self, grace: float = 0.0) -> None:
        """Wait until it has ended; after `grace` seconds, kill it."""
        if not self._gone.wait(grace):
            self._kill()
            self._gone.wait()


def _why(code: int | None) -> str:
    """Why a training process ended without a last message, as far as its exit code tells."""
    if code == EXIT_CODE:
        code = -signal.SIGTERM
    if code is None or code >= 0:
        return (
            f"its training process ended early, with exit code {code}: did a plugin call os._exit?"
        )
    name = signal.Signals(-code).name
    if code == KILLED:
        return "its training process was killed (SIGKILL): is there too little memory?"
    return f"its training process died of {name}"
