"""Long texts in the pipes between processes: nothing waits for ever, and one line is shown."""

from __future__ import annotations

import json
import os
import sys
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ssmlbench.cli import main
from ssmlbench.core.errors import RunFailed
from ssmlbench.core.events import Failed
from ssmlbench.core.plain_text import LONGEST, error_text, line_of
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.dispatch import Dispatch
from ssmlbench.grid.run_one import Summary, run_one
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.messages import JudgePipe
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.training_process import TrainingProcess
from tests.runs.test_execute import DATASET, SLOW_METHOD

JUDGE: Any = SimpleNamespace(spec=SimpleNamespace(method="slow"))
LONG = 2_000_000
"""Characters: more than any pipe or socket holds."""


def test_training_that_fails_at_length_before_it_has_its_assignment_is_heard() -> None:
    """Both sides were sending, and neither read."""
    ours, theirs = Pipe()
    pid = os.fork()
    if pid == 0:
        JudgePipe(theirs).fail(ValueError("at import"), "x" * LONG)
        os._exit(1)
    theirs.close()
    training = TrainingProcess(pid, ours, Pipe()[0], time_limit=60)
    assignment: Any = bytes(LONG)
    with pytest.raises(RunFailed, match="ValueError: at import"):
        training(assignment, JUDGE, lambda event: None)
    training.end()


def test_an_assignment_larger_than_the_pipe_arrives() -> None:
    ours, theirs = Pipe()
    pid = os.fork()
    if pid == 0:
        JudgePipe(theirs).fail(ValueError(len(theirs.recv())), "")
        os._exit(1)
    theirs.close()
    training = TrainingProcess(pid, ours, Pipe()[0], time_limit=60)
    assignment: Any = bytes(LONG)
    with pytest.raises(RunFailed, match=f"ValueError: {LONG}"):
        training(assignment, JUDGE, lambda event: None)
    training.end()


ENCODER = '''
from ssmlbench.api import Encoder

class Loud(Encoder):
    """An encoder that cannot be used."""
    name, kinds, features = "loud", {"vector"}, 4

    def forward(self, vectors):
        RAISES
'''
ESTIMATOR = '''
from ssmlbench.api import Estimator

class Loud(Estimator):
    """An estimator that cannot be used."""
    name, uses = "loud", "labelled rows"

    def fit(self, labelled, unlabelled):
        RAISES

    def scores(self, features):
        return features
'''
METHOD = SLOW_METHOD.replace("time.sleep(0.05)", "RAISES")
LINES = f"raise ValueError('x\\n' * {LONG // 2})"
ASKED: dict[str, dict[str, Any]] = {
    METHOD: {"method": "slow", "epochs": 2},
    ENCODER: {"method": "bce", "backbone": "loud", "epochs": 2},
    ESTIMATOR: {"method": "loud"},
}
"""Plugin files, and what to ask for so that they are used."""


def specs_that_fail(
    folder: Path, plugin: str, raised: str, seeds: int = 1
) -> tuple[Plugins, list[RunSpec]]:
    files = {"tiny.py": DATASET, "loud.py": plugin.replace("RAISES", raised)}
    for name, text in files.items():
        (folder / name).write_text(text)
    plugins = Plugins([folder / name for name in files])
    asked = [{**ASKED[plugin], "seed": seed} for seed in range(seeds)]
    return plugins, [resolve(plugins, {}, dataset="tiny", pi=0.3, **one) for one in asked]


def check_that_one_line_is_told(results: Path, spec: RunSpec, text: str, raised: str) -> None:
    assert len(text) < LONGEST + 200
    assert len(text.splitlines()) == 1
    assert "exit code" not in text  # the reason is known
    told = json.loads(RunFolder.of(results, spec).error_file.read_text())
    assert told["error"] == text
    whole = "x\n" * (LONG // 2 - 1) if raised == LINES else "x" * LONG
    assert str(LONG) not in raised or whole in told["traceback"]


@pytest.mark.parametrize(
    ("plugin", "raised"),
    [
        (METHOD, f"raise ValueError('x' * {LONG})"),
        (METHOD, LINES),
        (METHOD, f"raise SystemExit('x' * {LONG})"),
        (METHOD, "raise type('Silent', (ValueError,), {'__str__': lambda self: 1 / 0})"),
        (METHOD, "from ssmlbench.core.errors import UserError; raise UserError"),
        (ENCODER, f"raise ValueError('x' * {LONG})"),
        (ESTIMATOR, f"raise ValueError('x' * {LONG})"),
    ],
)
def test_an_error_of_any_length_is_one_line(tmp_path: Path, plugin: str, raised: str) -> None:
    plugins, (spec,) = specs_that_fail(tmp_path, plugin, raised)
    last = run_one(spec, plugins, RunContext(tmp_path / "results", "cpu", 1), lambda event: None)
    assert isinstance(last, Failed)
    check_that_one_line_is_told(tmp_path / "results", spec, last.text, raised)


@pytest.mark.parametrize("engine", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_an_error_of_any_length_is_one_line_by_every_engine(tmp_path: Path, engine: str) -> None:
    plugins, specs = specs_that_fail(tmp_path, METHOD, LINES, seeds=2)
    context = RunContext(tmp_path / "results", "cpu", 1)
    dispatch = Dispatch(context, engine, jobs=2 if engine == "local" else None)
    summary = dispatch.run(dispatch.plan(specs, plugins), lambda spec, event: None)
    assert isinstance(summary, Summary)
    assert len(summary.failed) == 2
    for spec, text in summary.failed:
        check_that_one_line_is_told(tmp_path / "results", spec, text, LINES)


@pytest.mark.parametrize("where", ['return ["a", "b", "c", "never tested"]', "random = np"])
def test_an_error_of_any_length_in_a_data_set_is_one_line(
    tmp_path: Path,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cache: Path,
) -> None:
    raised = f"raise ValueError('x\\n' * {LONG})\n        "
    text = DATASET.replace(where, f"{raised}{where}").replace('"tiny"', '"loud"')
    (tmp_path / "loud.py").write_text(text)
    command = ["ssmlbench", "data", "prepare", "loud", "--plugin", str(tmp_path / "loud.py")]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert len(told) < LONGEST + 400
    assert len(told.splitlines()) == 1
    assert "ValueError: x x x" in told


@pytest.mark.parametrize("error", [ValueError(), ValueError(""), ValueError(" \n ")])
def test_a_line_of_an_error_without_a_text_is_its_type(error: Exception) -> None:
    assert line_of(error) == line_of(error, -1) == "ValueError"
    assert line_of(ValueError("a\n b \n")) == "a"
    assert line_of(ValueError("a\n b \n"), -1) == "b"


def test_the_text_of_an_error_is_shortened_and_says_so() -> None:
    assert error_text(ValueError("short")) == "short"
    assert "x … (12,345 characters) … x" in error_text(ValueError("x" * 12_345))


LATE = """
        import sys, time
        class Late:
            text = ""
            def write(self, text):
                self.text += text
            def flush(self):
                time.sleep(0.4)
                print(self.text, file=sys.__stderr__, flush=True)
        sys.stdout = Late()
        print("seen")
        END
"""


@pytest.mark.parametrize("end", ["pass", "raise ValueError"])
def test_what_a_plugin_prints_is_not_lost_however_slow_its_process_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], end: str
) -> None:
    """The judge ends a training process that has reported."""
    text = SLOW_METHOD.replace("        time.sleep(0.05)\n", LATE.replace("END", end)[1:])
    files = {"tiny.py": DATASET, "slow.py": text}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    plugins = Plugins([tmp_path / name for name in files])
    spec = resolve(plugins, {}, method="slow", dataset="tiny", pi=0.3, epochs=1)
    last = run_one(spec, plugins, RunContext(tmp_path / "results", "cpu", 1), lambda event: None)
    assert isinstance(last, Failed) == (end != "pass")
    assert "seen" in capfd.readouterr().err
