"""Long texts in the pipes between processes: nothing waits for ever, and one line is shown."""

from __future__ import annotations

import json
import os
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from ssmlbench.core.errors import RunFailed
from ssmlbench.core.events import Failed
from ssmlbench.core.plain_text import LONGEST, error_text
from ssmlbench.grid.run_one import run_one
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.messages import JudgePipe
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.sealed_run import TrainingProcess
from tests.runs.test_execute import DATASET, SLOW_METHOD

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
    training = TrainingProcess(pid, ours, time_limit=60)
    assignment: Any = bytes(LONG)
    with pytest.raises(RunFailed, match="ValueError: at import"):
        training(assignment, None, lambda event: None)  # type: ignore[arg-type]
    training.end()


def test_an_assignment_larger_than_the_pipe_arrives() -> None:
    ours, theirs = Pipe()
    pid = os.fork()
    if pid == 0:
        JudgePipe(theirs).fail(ValueError(len(theirs.recv())), "")
        os._exit(1)
    theirs.close()
    training = TrainingProcess(pid, ours, time_limit=60)
    assignment: Any = bytes(LONG)
    with pytest.raises(RunFailed, match=f"ValueError: {LONG}"):
        training(assignment, None, lambda event: None)  # type: ignore[arg-type]
    training.end()


@pytest.mark.parametrize(
    "raised",
    [
        f"raise ValueError('x' * {LONG})",
        f"raise SystemExit('x' * {LONG})",
        "raise type('Silent', (ValueError,), {'__str__': lambda self: 1 / 0})",
    ],
)
def test_an_error_of_any_length_is_one_line(tmp_path: Path, raised: str) -> None:
    files = {"tiny.py": DATASET, "slow.py": SLOW_METHOD.replace("time.sleep(0.05)", raised)}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    plugins = Plugins([tmp_path / name for name in files])
    spec = resolve(plugins, {}, method="slow", dataset="tiny", pi=0.3, epochs=2)
    last = run_one(spec, plugins, RunContext(tmp_path / "results", "cpu", 1), lambda event: None)
    assert isinstance(last, Failed)
    assert len(last.text) < LONGEST + 200
    assert "exit code" not in last.text  # the reason is known
    told = json.loads(RunFolder.of(tmp_path / "results", spec).error_file.read_text())
    assert told["error"] == last.text
    assert str(LONG) not in raised or "x" * LONG in told["traceback"]


def test_the_text_of_an_error_is_shortened_and_says_so() -> None:
    assert error_text(ValueError("short")) == "short"
    assert error_text(ValueError("x" * 12_345)).endswith("x … (12,345 characters)")


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
