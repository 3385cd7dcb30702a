"""No code of a plugin runs while the files of scores, which hold test labels, are in its run's folder."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ssmlbench.core.events import Done, Event, Waiting
from ssmlbench.core.files import temporary_beside
from ssmlbench.core.locks import Lock
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.run_one import run_one
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.resolve import resolve

HERE = Path(__file__).parent
PATIENCE = 600
"""Seconds after which a test gives up, on a machine however slow."""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Plugins:
    monkeypatch.setenv("STOLEN", str(tmp_path))
    return Plugins([HERE / "cheats.py", HERE / "watching.py"])


def spec_of(plugins: Plugins, how: str) -> RunSpec:
    fields = {"epochs": 3, "warmup_epochs": 1, "pi": 0.5, "seed": 0, "dataset": "noise"}
    return resolve(plugins, {"how": how}, method="watcher", **fields)


@pytest.mark.parametrize(
    "how",
    [
        "in a child",
        pytest.param("in a grandchild", marks=pytest.mark.slow),
        "in a thread of a process that does not end",
    ],
)
def test_training_has_ended_when_the_judge_writes_scores(
    plugins: Plugins, tmp_path: Path, how: str
) -> None:
    context = RunContext(tmp_path / "results", "cpu", 1)
    assert isinstance(run_one(spec_of(plugins, how), plugins, context, lambda e: None), Done)
    assert not (tmp_path / "leaked").exists()


def test_what_a_killed_judge_left_is_deleted_before_a_plugin_is_imported(
    plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process makes the run, writes a part of its scores, and is killed."""
    monkeypatch.setenv("WATCHED_FROM", str(os.getpid()))
    spec, context = spec_of(plugins, "by what is there"), RunContext(tmp_path / "results", "cpu", 1)
    folder, waits = RunFolder.of(context.results, spec), threading.Event()
    events: list[Event] = []

    def listen(event: Event) -> None:
        events.append(event)
        if isinstance(event, Waiting):
            waits.set()

    def make() -> None:
        events.append(run_one(spec, plugins, context, listen))

    lock = Lock(folder.lock_file)
    lock.acquire()
    run = threading.Thread(target=make, daemon=True)
    run.start()
    assert waits.wait(PATIENCE)
    left = [folder.scores_file, temporary_beside(folder.scores_file), folder.history_file]
    for file in left:
        file.write_text("test labels")
    run.join(0.3)
    assert not (tmp_path / "imported").exists()
    lock.release(remove=True)
    run.join(PATIENCE)
    assert isinstance(events[-1], Done)
    assert (tmp_path / "imported").exists()
    assert not (tmp_path / "leaked").exists()
    assert not left[1].exists()
