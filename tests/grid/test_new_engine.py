"""An engine is one file in the engines' folder: the command line, its help and `status` know it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

import ssmlbench
import ssmlbench.cli
from ssmlbench.grid import engines
from tests.runs.test_execute import DATASET

ENGINE = '''
from functools import partial
from pathlib import Path

from ssmlbench.grid.engines.base import EngineOption, WaitingEngine
from ssmlbench.grid.queue_file import read_queues
from ssmlbench.grid.run_one import run_one


class Inline(WaitingEngine):
    """One run after another, in this process."""

    name = "inline"
    help = "this very process"
    options = (EngineOption("inline-log", "a file that gets a line a run."),)

    def make(self, plan, listener):
        for spec in plan.specs:
            (queued, *_) = read_queues(plan.context.results).values()
            with Path(self.given["inline-log"]).open("a") as log:
                log.write(f"{spec.method} {queued.engine}\\n")
            listener(spec, run_one(spec, plan.plugins, plan.context, partial(listener, spec)))
'''

Command = Callable[..., Result]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """The command line as it is with one file more in the folder of engines."""
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines" / "inline.py").write_text(ENGINE)
    (tmp_path / "tiny.py").write_text(DATASET)
    monkeypatch.setattr(engines, "__path__", [*engines.__path__, str(tmp_path / "engines")])
    monkeypatch.setattr(ssmlbench, "cli", ssmlbench.cli)  # restored when the test ends
    for name in [name for name in sys.modules if name.split(".")[:2] == ["ssmlbench", "cli"]]:
        monkeypatch.delitem(sys.modules, name)
    from ssmlbench.cli import app

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    yield lambda *arguments: CliRunner().invoke(app, arguments)
    sys.modules.pop("ssmlbench.grid.engines.inline", None)


def test_a_new_engine_is_one_file(command: Command, tmp_path: Path) -> None:
    text = command("run", "--help").output
    assert "inline: this very process" in text
    assert "--engine inline: a file that gets a line a run." in text

    request = ("run", "--method", "bce,cap", "--dataset", "tiny", "--pi", "0.3", "--epochs", "2")
    request += ("--plugin", "tiny.py", "--device", "cpu", "--engine", "inline")
    ended = command(*request, "--inline-log", "log")
    assert ended.exit_code == 0, ended.output
    assert "2 done, 0 already there, 0 failed" in ended.output
    assert (tmp_path / "log").read_text() == "bce inline\ncap inline\n"
    states = json.loads(command("status", "--format", "json").output)
    assert [state["state"] for state in states] == ["done", "done"]

    again = command(*request, "--inline-log", "log")
    assert "0 done, 2 already there" in again.output


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("--engine", "local", "--inline-log", "x"), "--inline-log x is for --engine inline"),
        (("--engine", "inlin"), "--engine inlin: no such choice. Did you mean inline"),
        (("--slurm", "partition=gpu"), "--slurm partition=gpu is for --engine slurm"),
        (("--engine", "slurm", "--slurm", "gpu"), "expected key=value, e.g. --slurm partition=gpu"),
        (("--jobs", "0"), "--jobs 0: must be at least 1"),
        (("--workers", "-1"), "--workers -1: must be at least 0"),
    ],
)
def test_an_option_of_another_engine_is_one_line(
    command: Command, arguments: tuple[str, ...], answer: str
) -> None:
    ended = command("run", "--method", "bce", "--dataset", "multidigits", "--pi", "0.1", *arguments)
    assert answer in str(ended.exception)
    assert type(ended.exception).__name__ == "UserError"
