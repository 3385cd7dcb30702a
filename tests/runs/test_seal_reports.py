"""What the seal reports reaches the judge whole, whatever else is being sent, and cuts no other message."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import pytest

from ssmlbench.core import remarks
from ssmlbench.core.plain_text import shorten
from ssmlbench.runs.messages import JudgePipe, Malformed
from ssmlbench.runs.seal_reports import STARTED, ReceivedReports, SealReports
from ssmlbench.runs.training_process import TrainingProcess, Violation

PATIENCE = 600
"""Seconds after which a test gives up, on a machine however slow."""
REPORTERS, EACH = 4, 20


def judged(train: Callable[[Connection, Connection], None]) -> Any:
    """Have a training process do something, and return its judge; what the judge raises is raised."""
    ours, theirs = Pipe()
    heard, reports = Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        ours.close()
        heard.close()
        try:
            train(theirs, reports)
        finally:
            os._exit(0)
    theirs.close()
    reports.close()
    judge: Any = SimpleNamespace(spec=SimpleNamespace(method="thief"))
    training = TrainingProcess(pid, ours, heard, time_limit=PATIENCE)
    training(None, judge, lambda event: None)  # type: ignore[arg-type]
    return judge


def test_a_report_arrives_while_another_message_is_half_sent() -> None:
    def train(pipe: Connection, reports: Connection) -> None:
        os.write(pipe.fileno(), (1000).to_bytes(4, "big") + b"half")
        SealReports(reports).alarm()("tried it")

    with pytest.raises(Violation, match=r"^thief tried it$"):
        judged(train)


def test_a_report_that_a_plugin_hides_fails_the_run() -> None:
    def train(pipe: Connection, reports: Connection) -> None:
        alarm = SealReports(reports).alarm()
        os.dup2(os.open(os.devnull, os.O_WRONLY), reports.fileno())
        alarm("tried it")

    with pytest.raises(Violation, match="tried to open or change what is sealed, and hid"):
        judged(train)


@pytest.mark.parametrize("written", [b"x" * 100_000, b"\n", b"-no end", b"\0\n!"])
def test_other_bytes_in_its_pipe_fail_the_run(written: bytes) -> None:
    with pytest.raises(Malformed, match="training sent a message that cannot be read"):
        judged(lambda pipe, reports: (os.write(reports.fileno(), written), None)[1])


def test_the_report_of_a_forked_process_counts_more_than_an_error_of_training() -> None:
    def train(pipe: Connection, reports: Connection) -> None:
        if (child := os.fork()) == 0:
            SealReports(reports).alarm()("tried it")
        os.waitpid(child, 0)
        JudgePipe(pipe).fail(ValueError("another"), "")

    with pytest.raises(Violation, match="thief tried it"):
        judged(train)


def test_threads_and_processes_report_at_once_and_every_report_is_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remarks, "MOST", REPORTERS * EACH)
    heard, pipe = Pipe(duplex=False)
    reports, judge = SealReports(pipe), ReceivedReports(heard, lambda: None)
    texts = [f"{letter * 9_000}\n" for letter in "abcd"]

    def report(text: str) -> None:
        for number in range(EACH):
            reports.note(f"{number}{text}")

    children = []
    for text in texts[REPORTERS // 2 :]:
        children.append(os.fork())
        if children[-1] == 0:
            report(text)
            os._exit(0)
    threads = [threading.Thread(target=report, args=(text,)) for text in texts[: REPORTERS // 2]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for child in children:
        os.waitpid(child, 0)
    pipe.close()
    judge.wait(PATIENCE)
    assert not judge.attempt
    sent = [f"{number}{text}"[: select.PIPE_BUF - 2] for text in texts for number in range(EACH)]
    assert sorted(judge.notes) == sorted(map(shorten, sent))


def test_a_program_is_named_whatever_else_a_plugin_writes_to_the_pipe() -> None:
    heard, reports = Pipe(duplex=False)
    received = ReceivedReports(heard, refused=lambda: None)
    seal = SealReports(reports)
    for number in range(100):
        seal.note(f"note {number}")
    seal.note(f"{STARTED} while it trained: cat")
    reports.close()
    received.wait(PATIENCE)
    assert received.notes[0] == f"{STARTED} while it trained: cat"
    assert len(received.notes) == 1 + remarks.MOST + 1
