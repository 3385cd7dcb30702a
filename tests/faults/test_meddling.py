"""A plugin that meddles with its judge, the tool's files or other runs fails its own run, and no other."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ssmlbench.core.events import Closing, Done, Failed
from ssmlbench.core.history_columns import JUDGED, LOSS, PROGRESS
from ssmlbench.core.paths import builtin_root
from ssmlbench.grid.run_one import run_one
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.kernel_lock import kernel_can_lock, signals_are_kept
from ssmlbench.runs.resolve import resolve
from tests.faults.attacks import file_changes, interpreter, judge_messages, other_processes
from tests.faults.attacks.file_changes import CHANGES

HERE = Path(__file__).parent
SEALED, PROTECTED = "labels are sealed", "no plugin may change it"

OUTCOMES = {
    "reads labels and silences the report": SEALED,
    "reads labels and breaks json": SEALED,
    "reads labels and empties the desk": SEALED,
    "reads labels by the judges root": SEALED,
    "reads labels by the first process": SEALED,
    "writes to every descriptor": "training sent a message that cannot be read",
    "sends a mask that is too large": "training sent a message that cannot be read: 1 bytes for",
    "hands in what was not checked": "scores of meddler are not all numbers in [0, 1]",
    "hands in fewer rows": "scores of meddler have shape (22, 4), expected N × K: (44, 4)",
    "reports seconds that are no number": "a message that cannot be read: seconds is nan",
    "reports less than no memory": "a message that cannot be read: peak_memory_mb is -1.0",
    "reports one epoch three times": "history has rows of epochs [1, 1, 1], expected 3",
    "reports a formula as a phase": "a message that cannot be read: phase is '=HYPERLINK",
    "reports a text as a number": "a message that cannot be read: own is '@SUM(1)'",
    "sends an event without fields": "a message that cannot be read: an event has []",
    "puts a pipe in place of its model": "model.safetensors: No such file",
    "links its model to an endless device": "model.safetensors: No such file",
    "puts terabytes in place of its model": "model.safetensors is damaged: nearly all of it was nev",
    "reports thousands of columns": "training sent a message that cannot be read: history has 5,0",
    "grades an epoch that there is not": "meddler handed in values of epoch 7; there is none",
    "records an epoch that there is not": "meddler handed in values of epoch -3; there is none",
    "hands in an epoch of its choice": "scores of epoch 1; expected those of epoch 3",
    "hands in weights of other labels": "weights of meddler have shape (3, 0), expected K × D",
    "starts a program past the report": "hid the report",
    "takes the judges room": ": File too large; free some space",
    "changes the tools code": PROTECTED,
    "changes compiled code": PROTECTED,
    "puts code in the way of python": PROTECTED,
    "renames code into the tool": PROTECTED,
    "changes another method": PROTECTED,
    "changes another result": SEALED,
    "changes another history": SEALED,
    "forges what grids remember": PROTECTED,
    "links its files to another run": SEALED,
    "deletes its lock in libc": "its lock was deleted while it trained",
    "logs what the judge logs": "not the method's; choose another name",
    "lies about its scores": "are not all numbers in [0, 1]",
    "lies about its array": "are not all numbers in [0, 1]",
}
"""What is done, and what the failed run says."""
NO_USE = {
    "puts a fifo in place of its history": True,
    "puts a folder in place of its history": True,
    "puts files in place of the judges": True,
    "leaves processes that fork and leave": sys.platform == "linux",
    "takes the judges descriptors": kernel_can_lock(),
    "suspends its judge": signals_are_kept(),
    "signals the server of its judge": signals_are_kept(),
}
"""The run is made as ever, where the kernel keeps processes apart."""

Make = Callable[..., tuple[Closing, RunFolder]]


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return Plugins([HERE / "cheats.py", HERE / "meddling.py"])


@pytest.fixture
def make(plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Make:
    monkeypatch.setenv("STOLEN", str(tmp_path))

    def call(how: str = "", method: str = "meddler") -> tuple[Closing, RunFolder]:
        fields = {"epochs": 3, "warmup_epochs": 1, "pi": 0.5, "seed": 0, "dataset": "noise"}
        spec = resolve(plugins, {"how": how} if how else {}, method=method, **fields)
        context = RunContext(tmp_path / "results", "cpu", 1)
        return run_one(spec, plugins, context, lambda e: None), RunFolder.of(context.results, spec)

    return call


def state(*folders: Path) -> dict[Path, str]:
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return {
        file: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.suffix != ".pyc"
    }


@pytest.mark.parametrize(
    "how",
    [pytest.param(how, marks=() if "desk" in how else pytest.mark.slow) for how in OUTCOMES],
)
def test_a_plugin_that_meddles_fails_its_run_and_changes_nothing_else(make: Make, how: str) -> None:
    made, other = make(method="bce")
    assert isinstance(made, Done)
    code = [builtin_root() / name for name in ("methods", "ssmlbench")]
    before = state(other.path, *(folder for folder in code if folder.is_dir()))
    last, folder = make(how)
    assert isinstance(last, Failed), last
    assert OUTCOMES[how] in last.text
    assert not folder.finished
    assert state(*(dict.fromkeys(file.parent for file in before))).items() >= before.items()
    assert other.finished
    assert not (folder.path.parents[3].parent / "pickled").exists()


@pytest.mark.slow
@pytest.mark.parametrize("how", [how for how, here in NO_USE.items() if here])
def test_what_is_of_no_use_changes_no_number(make: Make, how: str) -> None:
    honest, _ = make()
    last, folder = make(how)
    assert isinstance(honest, Done)
    assert isinstance(last, Done), last
    assert last.map == honest.map
    assert json.loads(folder.result_file.read_text())["metrics"]
    for file in folder.path.iterdir():
        assert b"forged" not in file.read_bytes(), file


def test_every_way_to_meddle_is_tried(plugins: Plugins) -> None:
    deeds = sys.modules[plugins.methods["meddler"].__module__].DEEDS
    assert deeds.keys() <= OUTCOMES.keys() | NO_USE.keys()
    written = {
        name
        for module in (file_changes, interpreter, judge_messages, other_processes)
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and name.count("_") >= 2
    }
    others = {name for name in written if not name.startswith(("_", "from_", "by_"))}
    assert {name.replace("_", " ") for name in others - CHANGES.keys()} <= deeds.keys()


def test_every_column_of_a_history_that_is_not_the_methods_is_reserved(make: Make) -> None:
    _, folder = make(method="cap")
    columns = folder.history_file.read_text().splitlines()[0].split(",")
    own = {"tied_positives"}
    assert {c for c in columns if not c.startswith(LOSS)} - own <= {*PROGRESS, *JUDGED}
