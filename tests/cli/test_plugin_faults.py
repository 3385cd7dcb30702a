"""Commands call the code of plugins themselves: whatever it raises is one line, and no false success."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.resolve import resolve
from tests.support.tiny_models import write_data_plugin

Command = Callable[..., CompletedProcess[str]]

FAULTY = '''
import os, sys
import numpy as np
from ssmlbench.api import Estimator

class Odd(BaseException):
    """Neither an Exception nor an exit."""

class Unprintable(Exception):
    """Its text raises another error."""
    def __str__(self):
        raise ValueError

FAULTS = {
    "exit": lambda: sys.exit(0),
    "exit with a text": lambda: sys.exit("bye\\nbye"),
    "odd": lambda: (_ for _ in ()).throw(Odd("two\\nlines \\x1b[31m")),
    "raise": lambda: 1 / 0,
    "unprintable": lambda: (_ for _ in ()).throw(Unprintable()),
    "closed": lambda: (_ for _ in ()).throw(GeneratorExit()),
}

def at(place):
    where, _, fault = os.environ.get("FAULT", "").partition(":")
    if where == place:
        FAULTS[fault]()

class Faulty(Estimator):
    """It does what the environment says, and else predicts the prior."""
    name = "faulty"

    def __init__(self, config, labels, seed):
        super().__init__(config, labels, seed)
        at("init")

    @classmethod
    def most_labels_of(cls, config, labelled, unlabelled):
        at("plan")
        return {"": None, "text": "many"}[os.environ.get("MOST", "")]

    def fit(self, labelled, unlabelled):
        self.prior = labelled.prior

    def scores(self, features):
        at("scores")
        given = os.environ.get("SCORES", "sound")
        scores = np.tile(self.prior, (len(features), 1))
        return {"sound": scores, "none": None, "narrow": scores[:, :1], "complex": scores + 1j}[given]
'''


FAULTS = ["exit", "exit with a text", "odd", "raise", "unprintable", "closed"]
PREDICT = ("predict", "--input", "new.csv", "--out", "new-labels.csv")
PLAN = ("run", "--method", "faulty", "--dataset", "tiny-vectors", "--pi", 0.3, "--dry-run")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The plugin file of the data, and the folder of a run that keeps its model."""
    folder = tmp_path_factory.mktemp("faulty")
    file = folder / "faulty.py"
    file.write_text(FAULTY)
    plugins = Plugins([data := write_data_plugin(folder), file])
    spec = resolve(plugins, {}, method="faulty", dataset="tiny-vectors", pi=0.3)
    execute(spec, plugins, RunContext(folder / "results", "cpu", 1, keep_model=True))
    return data, RunFolder.of(folder / "results", spec).path


@pytest.fixture
def call(
    made: tuple[Path, Path], ssmlbench: Command, tmp_path: Path
) -> Callable[..., CompletedProcess[str]]:
    data, run = made
    file = tmp_path / "faulty.py"
    file.write_text(FAULTY)
    (tmp_path / "new.csv").write_text(f"{','.join('abcdefgh')}\n{','.join('12345678')}\n")

    def command(*words: object) -> CompletedProcess[str]:
        named = ["--run", run] if words == PREDICT else []
        return ssmlbench(
            *words, *named, *(word for plugin in (data, file) for word in ("--plugin", plugin))
        )

    return command


def test_a_sound_plugin_is_called(call: Command) -> None:
    assert [call(*words).returncode for words in (PREDICT, PLAN)] == [0, 0]


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        *(("plan", fault) for fault in FAULTS),
        ("scores", "exit"),
        ("scores", "raise"),
        ("init", "odd"),
    ],
)
def test_what_a_plugin_raises_in_a_command_is_one_line_with_its_place(
    call: Command, monkeypatch: pytest.MonkeyPatch, place: str, fault: str
) -> None:
    monkeypatch.setenv("FAULT", f"{place}:{fault}")
    said = call(*(PLAN if place == "plan" else PREDICT))
    assert_one_line(said)
    if "exit" in fault:
        assert "it called sys.exit(" in said.stderr


@pytest.mark.parametrize(
    ("variable", "value", "words", "expected"),
    [
        ("SCORES", "none", PREDICT, "scores of faulty are None"),
        ("SCORES", "narrow", PREDICT, "scores of faulty have shape (1, 1)"),
        ("SCORES", "complex", PREDICT, "got ndarray of complex128"),
        ("MOST", "text", PLAN, "most_labels_of returned 'many'; expected a whole number, or None"),
    ],
)
def test_what_a_plugin_returns_in_a_command_is_checked(
    call: Command,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    words: tuple[object, ...],
    expected: str,
) -> None:
    monkeypatch.setenv(variable, value)
    said = call(*words)
    assert_one_line(said)
    assert expected in said.stderr


def assert_one_line(said: CompletedProcess[str]) -> None:
    assert said.returncode == 2, said
    (line,) = said.stderr.splitlines()
    assert line.startswith("error: ")
    assert "faulty.py:" in line
    assert "\x1b" not in line
    assert "Traceback" not in said.stdout


@pytest.mark.slow
def test_a_command_does_not_wait_for_a_thread_that_a_plugin_has_started(
    tmp_path: Path, ssmlbench_process: Command
) -> None:
    """Seconds, as threads have time to end."""
    file = tmp_path / "endless.py"
    start = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n"
    file.write_text(start + FAULTY)
    began = time.monotonic()
    said = ssmlbench_process("methods", "faulty", "--plugin", file)
    assert time.monotonic() - began < 120
    assert said.returncode == 0
    assert "Faulty" in said.stdout or "faulty" in said.stdout
    assert "a plugin file started a thread that does not end" in said.stderr
