"""A lock has one holder at a time, whoever deletes its file, with flock and without."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ssmlbench.core import keep_alive, locks
from ssmlbench.core.locks import Busy, Lock, acquire_with_notice, held_if_free, is_held

PATIENCE = 600
"""Seconds after which a test gives up, on a machine however slow."""


@pytest.fixture(params=["flock", "no flock", "lease chosen"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "no flock":

        def refuse(*arguments: Any) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "flock", refuse)
    if request.param == "lease chosen":
        monkeypatch.setenv("SSMLBENCH_LOCKS", "lease")
    return request.param


def stress(path: Path, rounds: int, inside: list[int], seen: list[int]) -> None:
    for _ in range(rounds):
        lock = Lock(path)
        lock.acquire()
        inside[0] += 1
        seen.append(inside[0])
        time.sleep(0)  # let others try
        inside[0] -= 1
        lock.release(remove=True)


def test_there_is_never_a_second_holder_while_every_holder_deletes_the_file(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "POLL_SECONDS", 0.0005)
    inside, seen = [0], list[int]()
    rounds = 60 if kind == "flock" else 12
    path = tmp_path / "folder" / ".lock"
    threads = [threading.Thread(target=stress, args=(path, rounds, inside, seen)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 6 * rounds
    assert set(seen) == {1}


def test_a_lock_that_is_held_is_busy_and_known_to_be_held(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    told = threading.Event()
    with Lock(path):
        assert is_held(path)
        with pytest.raises(Busy):
            Lock(path).acquire(wait=False)
        waiter = threading.Thread(target=lambda: acquire_with_notice(Lock(path), told.set))
        waiter.daemon = True
        waiter.start()
        assert told.wait(PATIENCE)
        assert waiter.is_alive()
    waiter.join(PATIENCE)
    assert not waiter.is_alive()


def test_a_free_lock_is_held_in_a_block_and_one_that_is_not_free_is_left_alone(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / ".lock"
    with held_if_free(path) as free:
        assert free
        with held_if_free(path) as second:
            assert not second
        with pytest.raises(Busy):
            Lock(path).acquire(wait=False)
    assert list(tmp_path.iterdir()) == []


def test_whoever_moved_a_lock_away_leaves_the_next_holders_file(kind: str, tmp_path: Path) -> None:
    """As `runs delete` does it with the folder of a run."""
    path = tmp_path / "folder" / ".lock"
    first, second = Lock(path), Lock(path)
    first.acquire()
    path.parent.rename(tmp_path / "moved")
    second.acquire(wait=False)
    first.release(remove=True)
    with pytest.raises(Busy):
        Lock(path).acquire(wait=False)
    second.release(remove=True)
    assert list(path.parent.iterdir()) == []


def test_a_lease_that_was_not_touched_for_hours_is_dead_at_first_sight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSMLBENCH_LOCKS", "lease")
    lease = tmp_path / f".lock{locks.LEASE}0"
    lease.touch()
    with held_if_free(tmp_path / ".lock") as free:
        assert not free
    hours_ago = time.time() - 7200
    os.utime(lease, (hours_ago, hours_ago))
    with held_if_free(tmp_path / ".lock") as free:
        assert free
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_free_after_its_release_even_if_the_folder_is_deleted(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "folder" / ".lock"
    lock = Lock(path)
    lock.acquire()
    lock.release(remove=True)
    path.parent.rmdir()
    Lock(path).acquire(wait=False)


def _hold_until_killed(path: Path, ready: Any) -> None:
    Lock(path).acquire()
    ready.send(True)
    time.sleep(6000)


def test_the_lease_of_a_killed_process_is_taken_over_when_it_was_not_touched_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSMLBENCH_LOCKS", "lease")
    monkeypatch.setattr(keep_alive, "BEAT_SECONDS", 0.05)
    path = tmp_path / ".lock"
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe()
    holder = fork.Process(target=_hold_until_killed, args=(path, there))
    holder.start()
    assert here.recv()
    clock = [0.0]  # of the process that waits: the holder may be slow
    monkeypatch.setattr(
        locks,
        "time",
        SimpleNamespace(monotonic=lambda: clock[0], sleep=time.sleep, time=time.time),
    )
    waiting = Lock(path)
    waiter = threading.Thread(target=waiting.acquire, daemon=True)
    waiter.start()
    (lease,) = tmp_path.iterdir()
    for _ in range(4):
        touched = lease.stat().st_mtime_ns
        while lease.stat().st_mtime_ns == touched:
            time.sleep(0.01)
        clock[0] += 0.6 * locks.FRESH_SECONDS
        waiter.join(0.2)
        assert waiter.is_alive(), "the holder is alive and touches its lease"
    holder.kill()
    holder.join()
    while waiter.is_alive():
        clock[0] += locks.FRESH_SECONDS
        waiter.join(0.2)
    waiting.release()
    assert list(tmp_path.iterdir()) == []
