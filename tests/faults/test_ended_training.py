"""Training processes that end, hang, or hand in what is no score: a failed run with its reason."""

from __future__ import annotations

import json

import pytest

from ssmlbench.core.events import Failed, Retried
from ssmlbench.grid import run_one as run_one_module
from ssmlbench.runs.kernel_lock import signals_are_kept
from tests.faults.sealed_runs import Make, make

__all__ = ["make"]  # a fixture


KILLED_JUDGE = "not permitted" if signals_are_kept() else "its judge process died"
"""What a run says whose plugin tried to kill its judge."""
WRONG_SCORES = (
    "one NaN",
    "one infinity",
    "one above 1",
    "one below 0",
    "a row too few",
    "transposed",
    "texts",
    "nothing",
    "a list of lists",
)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("exits", "a plugin called sys.exit(0)"),
        ("exits in the constructor", "a plugin called sys.exit(0)"),
        ("exits at once", "ended early, with exit code 0: did a plugin call os._exit?"),
        ("crashes", "died of SIGSEGV"),
        ("is killed", "was killed (SIGKILL): is there too little memory? (twice)"),
        ("takes all memory", "MemoryError: no room for 800 GB"),
        ("raises no exception", "KeyboardInterrupt"),
        ("lies to the judge", "training sent a message that cannot be read"),
        ("leaves a child", "ended early, with exit code 0"),
        ("leaves a daemon", "ended early, with exit code 0"),
        ("closes every file", "closed the pipe to the judge and went on"),
        ("writes a result", "labels are sealed"),
        ("writes a result natively", "ended early, with exit code 0"),
        ("writes a result and kills the judge", KILLED_JUDGE),
    ],
)
def test_a_plugin_that_ends_its_process_is_a_failed_run_with_a_reason(
    make: Make, monkeypatch: pytest.MonkeyPatch, how: str, reason: str
) -> None:
    if how == "closes every file":
        monkeypatch.setattr(run_one_module, "JUDGE", "tests.faults.impatient_judge:judge_process")
    last, folder, events = make(how)
    assert isinstance(last, Failed), last
    assert reason in last.text
    assert not folder.finished
    killed = how == "is killed" or (reason == KILLED_JUDGE and not signals_are_kept())
    assert any(isinstance(event, Retried) for event in events) == killed
    assert not folder.result_file.exists()
    assert not folder.lock_file.exists() or make(how)[0] == last  # the lock is free


@pytest.mark.parametrize("how", ["hangs", "says half of it"])
def test_a_run_that_hangs_ends_at_its_time_limit(make: Make, how: str) -> None:
    last, folder, _ = make(how, time_limit=1.0)
    assert isinstance(last, Failed)
    assert "took longer than the time limit of 1 s" in last.text
    assert "time limit" in json.loads(folder.error_file.read_text())["error"]


@pytest.mark.parametrize("how", sorted(WRONG_SCORES))
def test_scores_that_are_none_fail_the_run_and_name_the_method(make: Make, how: str) -> None:
    last, folder, _ = make(how)
    assert isinstance(last, Failed), last
    assert "scores of cheat" in last.text
    assert not folder.finished


def test_a_question_to_the_judge_is_answered_once(make: Make) -> None:
    last, _, _ = make("asks twice", fields={"selection": "oracle"})
    assert isinstance(last, Failed)
    assert "asked the judge about epoch 1 twice" in last.text
