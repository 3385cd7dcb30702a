"""Runs of the cheating method, for the tests of the seal."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ssmlbench.core.events import Closing, Event
from ssmlbench.grid.run_one import run_one
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.resolve import resolve

CHEATS = Path(__file__).with_name("cheats.py")

Make = Callable[..., tuple[Closing, RunFolder, list[Event]]]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Make:
    plugins = Plugins([CHEATS])
    monkeypatch.setenv("STOLEN", str(tmp_path))

    def call(
        how: str = "", method: str = "cheat", **options: Any
    ) -> tuple[Closing, RunFolder, list[Event]]:
        fields: dict[str, Any] = {"epochs": 3, "pi": 0.5, "seed": 0, **options.pop("fields", {})}
        settings = {"how": how} if how else {}
        spec = resolve(plugins, settings, method=method, dataset="noise", **fields)
        context = RunContext(tmp_path / "results", "cpu", 1, **options)
        events: list[Event] = []
        last = run_one(spec, plugins, context, events.append)
        return last, RunFolder.of(context.results, spec), events

    return call


def in_child(work: Callable[[], str]) -> bytes:
    """What a function returns in a forked process."""
    inside, outside = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(120)  # a fork of a process with threads may hang
            os.write(outside, work().encode())
        finally:
            os._exit(0)
    os.close(outside)
    with os.fdopen(inside, "rb") as opened:
        content = opened.read()
    os.waitpid(child, 0)
    return content
