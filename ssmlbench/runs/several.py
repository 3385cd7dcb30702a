"""One run on several devices, with a process for each: the training process and its forks, the followers.

Followers are forked after the training process was sealed, and are sealed with it. They hand in nothing
and write nothing. If one of them ends early, the run ends with its reason.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from ssmlbench.core.errors import RunStopped
from ssmlbench.core.events import Notify
from ssmlbench.core.plain_text import error_text
from ssmlbench.core.stopping import EndsWithParent, ignore_sigterm
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.judge import JudgeInterface
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.train import Assignment, TrainingReport, train_run
from ssmlbench.training.device import pick_device
from ssmlbench.training.processes import Processes

GRACE = 10.0
"""Seconds after which a process ends that still waits for one that has ended."""

REASON_SECONDS = 60.0
"""The longest that a process whose connection broke waits for the reason of the other one."""

LONGEST_MESSAGE = 4_000
"""Bytes of an error: nobody reads the pipe before the process has ended, so all must fit in it."""


LOST, OTHER = b"1", b"0"
"""The first byte of an error: whether the process lost its connection to another one."""


def train_together(
    assignment: Assignment,
    plugins: Plugins,
    judge: JudgeInterface,
    notify: Notify,
    fail: Callable[[BaseException, str], None],
) -> TrainingReport:
    """Train in as many processes as the context has devices; this one hands in.

    fail: reports why the run ends, if this process itself hangs because another one has ended.
    """
    count = assignment.context.gpus
    if count == 1:
        return train_run(assignment, plugins, judge, notify)
    # Closing processes may write it anew after it was deleted: the judge deletes it when all have ended.
    rendezvous = RunFolder(assignment.checkpoint_file.parent).scratch / "rendezvous"
    rendezvous.parent.mkdir(exist_ok=True)
    rendezvous.unlink(missing_ok=True)
    others = [
        Follower(rank, count, lambda rank: _follow(rank, assignment, plugins, judge, rendezvous))
        for rank in range(1, count)
    ]
    threading.Thread(target=_watch, args=(others, fail), daemon=True).start()
    device = pick_device(assignment.context.device).type
    try:
        with Processes.connected(0, count, device, rendezvous) as processes:
            report = train_run(assignment, plugins, judge, notify, processes)
    except Exception as error:
        if _is_connection_error(error) and (cause := first_cause(others, wait=REASON_SECONDS)):
            raise RunStopped(cause) from error
        raise
    finally:
        for other in others:
            other.expected = True
    for other in others:
        other.reason(wait=GRACE)
    return report


def _follow(
    rank: int, assignment: Assignment, plugins: Plugins, judge: JudgeInterface, rendezvous: Path
) -> None:
    device = pick_device(assignment.context.device).type
    with Processes.connected(rank, assignment.context.gpus, device, rendezvous) as processes:
        train_run(assignment, plugins, judge, lambda event: None, processes)


def _is_connection_error(error: BaseException | None) -> bool:
    """Whether an error, or its cause, concerns the connection to another process."""
    words = ("gloo", "nccl", "connection", "broken pipe", "socket", "timed out", "store")
    while error is not None:
        if isinstance(error, RuntimeError | OSError) and any(
            w in error_text(error).lower() for w in words
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def first_cause(others: Sequence[Follower], wait: float = 0.0) -> str:
    """Why the run ends: the reason of a follower that ended early; "" if none did.

    When one ends, others lose their connection to it: theirs is the reason only if there is no other.
    """
    until = time.monotonic() + wait
    while True:
        ended = [other for other in others if other.reason()]
        causes = [other for other in ended if not other.lost_connection]
        if causes or all(other.ended() for other in others) or time.monotonic() >= until:
            return next((other.reason() for other in (*causes, *ended)), "")
        time.sleep(0.05)


class Follower:
    """A forked process that takes part in a run, as this process sees it."""

    def __init__(self, rank: int, count: int, work: Callable[[int], None]):
        self.name = f"process {rank + 1} of {count}"
        self.expected = False  # whether its end is expected
        self.lost_connection = False  # to another one, which ended it
        self._error, error = Pipe(duplex=False)
        self._code: int | None = None
        self._message = ""  # why it failed, in its own words
        self._lock = threading.Lock()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _run_follower(parent, error, lambda: work(rank))
        error.close()

    def ended(self) -> bool:
        """Whether it has ended."""
        with self._lock:
            if self._code is None:
                try:
                    pid, status = os.waitpid(self.pid, os.WNOHANG)
                except ChildProcessError:  # a plugin has waited for it
                    pid, status = self.pid, 1 << 8
                if pid:
                    self._read_message()
                    self._code = os.waitstatus_to_exitcode(status)
            return self._code is not None

    def _read_message(self) -> None:
        with suppress(EOFError, OSError):
            if self._error.poll():
                content = self._error.recv_bytes()
                self.lost_connection = content.startswith(LOST)
                self._message = content[len(LOST) :].decode(errors="replace")

    def reason(self, wait: float = 0.0) -> str:
        """Why it ended early; "" if it has not ended, or had finished its work."""
        until = time.monotonic() + wait
        while not self.ended() and time.monotonic() < until:
            time.sleep(0.05)
        if not self._code:
            return ""
        if self._message:
            return f"its {self.name} failed: {self._message}"
        if self._code > 0:
            return f"its {self.name} ended early, with exit code {self._code}"
        name = signal.Signals(-self._code).name
        hint = ": is there too little memory?" if -self._code == signal.SIGKILL else ""
        return f"its {self.name} was killed ({name}){hint}"


def _run_follower(parent: int, pipe: Connection, work: Callable[[], None]) -> None:
    """Do the work, then end this process; end it as well when its parent ends."""
    ignore_sigterm()  # the parent saves, and ends this process
    EndsWithParent(parent)
    code = 1
    try:
        work()
        code = 0
    except BaseException as error:  # a plugin may raise what is no Exception
        with suppress(OSError):
            text = error_text(error) or type(error).__name__
            kind = LOST if _is_connection_error(error) else OTHER
            pipe.send_bytes(kind + text.encode(errors="replace")[:LONGEST_MESSAGE])
    finally:
        os._exit(code)


def _watch(others: list[Follower], fail: Callable[[BaseException, str], None]) -> None:
    """End this process if it waits for a follower that has ended: not every backend notices."""
    while True:
        time.sleep(0.2)
        for other in others:
            if not other.expected and other.reason():
                time.sleep(GRACE)
                if not other.expected:
                    with suppress(OSError):
                        fail(RunStopped(first_cause(others)), "")
                    os._exit(1)
