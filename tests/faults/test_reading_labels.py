"""Attempts to read labels or to change files of others: refused, reported, or without a find."""

from __future__ import annotations

import json
import re
import shutil
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ssmlbench.core.events import Done, Failed
from ssmlbench.core.files import temporary_beside
from ssmlbench.core.paths import cache_root
from ssmlbench.grid.run_one import run_one
from ssmlbench.plugins import watch
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs import sealed_run
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import open_task
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.kernel_lock import kernel_can_lock
from ssmlbench.runs.known_results import remember_results
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.sealed_run import SealedRequest
from tests.faults.attacks.catalogue import (
    FINDS_NOTHING,
    FINDS_NOTHING_IN_TRAINING,
    HIDES_ITS_ERROR,
    RACES,
    REFUSED_BY_THE_KERNEL,
    REFUSED_IN_TRAINING,
    REPORTED,
    REPORTED_STEALS,
    STEALS_REFUSED_BY_THE_KERNEL,
    WAYS,
)
from tests.faults.attacks.file_changes import CHANGES
from tests.faults.sealed_runs import CHEATS, Make, in_child, make

__all__ = ["make"]  # a fixture


def test_every_cheat_is_in_one_of_the_lists() -> None:
    listed = *REPORTED_STEALS, *FINDS_NOTHING_IN_TRAINING, *STEALS_REFUSED_BY_THE_KERNEL
    listed += REFUSED_IN_TRAINING
    assert cheats().STEALS.keys() == set(listed)


@pytest.fixture(scope="module")
def outcomes(
    tmp_path_factory: pytest.TempPathFactory, cache: Path
) -> dict[str, dict[str, list[str]]]:
    """What each cheat gets in one sealed process: the errors, the reports and the notes."""
    folder = tmp_path_factory.mktemp("outcomes")
    plugins, context = Plugins([CHEATS]), RunContext(folder / "results", "cpu", 1)
    spec = resolve(plugins, {}, method="bce", dataset="noise", epochs=2, pi=0.5)
    assert isinstance(run_one(spec, plugins, context, lambda event: None), Done)
    task = open_task(spec, plugins).folder
    (folder / "elsewhere.csv").write_text("labels")
    (folder / "raw").mkdir()
    (folder / "raw" / "labels.csv").symlink_to(folder / "elsewhere.csv")
    (folder / "raw" / "test" / "cat").mkdir(parents=True)
    (folder / "raw" / "test" / "cat" / "1.txt").write_text("a text")
    for place in ("storage", "raw/annotations"):
        (folder / place).mkdir()
    (folder / "storage" / "annotations.csv").write_text("labels")
    (folder / "raw" / "annotations" / "test.csv").symlink_to(folder / "storage/annotations.csv")
    other_labels = folder / "usual" / "ssmlbench" / "tasks" / "noise-v1.9" / "labels"
    other_labels.mkdir(parents=True)
    shutil.copy(task / "labels" / "test.arrow", other_labels)
    (folder / "made-before").hardlink_to(task / "labels" / "test.arrow")
    (folder / "results-logs" / "tensorboard").mkdir(parents=True)
    (folder / "results-logs" / "tensorboard" / "events.1").write_text("map 0.4")
    run = RunFolder.of(context.results, spec)
    shutil.copytree(run.path, folder / "elsewhere" / run.path.relative_to(context.results))
    remember_results(folder / "elsewhere", "noise")
    compared = task.with_name("verify-1.unfinished") / "labels"
    compared.mkdir(parents=True)
    shutil.copy(task / "labels" / "test.arrow", compared)
    RunFolder.of(context.results, spec).history_file.touch()
    index = cache_root() / "index" / "x.sqlite"
    index.parent.mkdir(exist_ok=True)
    index.touch()
    RunFolder.of(context.results, spec).judgements_file.touch()
    temporary_beside(RunFolder.of(context.results, spec).scores_file).touch()
    own = resolve(plugins, {}, method="cheat", dataset="noise", epochs=2, pi=0.5)
    files = plugins.training_files(own.method, own.backbone)
    request = SealedRequest(own, task, files, context, str(folder / "raw"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STOLEN", str(folder))
        patch.setenv("XDG_CACHE_HOME", str(folder / "usual"))
        found: dict[str, dict[str, list[str]]] = json.loads(in_child(partial(steal_all, request)))
    index.unlink()
    shutil.rmtree(compared.parent)
    (folder / "made-before").unlink()
    return found


def steal_all(request: SealedRequest) -> str:
    """Seal this process as one that trains, and cheat in every way."""
    watch._files.clear()  # a process that trains is sealed before it imports a plugin
    sys.dont_write_bytecode = True  # as there: libraries need not be compiled yet
    tried: list[str] = []
    noted: list[str] = []
    sealed_run._seal(request, SimpleNamespace(alarm=lambda: tried.append, note=noted.append))  # type: ignore[arg-type]
    found = {}
    ways = {**cheats().STEALS, **WAYS, **CHANGES}
    for name, steal in sorted(ways.items(), key=lambda item: _takes_the_watch_apart(item[0])):
        if name in (*FINDS_NOTHING_IN_TRAINING, *REFUSED_IN_TRAINING):
            continue
        tried.clear()
        noted.clear()
        try:
            steal()
            errors = []
        except BaseException as error:
            errors = [repr(error)]
        found[name] = {"errors": errors, "tried": list(tried), "noted": list(noted)}
    return json.dumps(found)


def _takes_the_watch_apart(way: str) -> int:
    """What leaves the watch in pieces comes last."""
    return 2 * ("closure" in way) + ("changed" in way)


def cheats() -> Any:
    """The module of the plugin file."""
    return sys.modules[Plugins([CHEATS]).methods["cheat"].__module__]


@pytest.mark.parametrize("how", REPORTED)
def test_an_attempt_to_read_labels_is_refused_and_reported(
    outcomes: dict[str, dict[str, list[str]]], how: str
) -> None:
    assert outcomes[how]["tried"], outcomes[how]
    assert "labels are sealed" in outcomes[how]["errors"][0]


@pytest.mark.parametrize("how", sorted(CHANGES))
def test_an_attempt_to_change_the_tool_or_another_run_is_refused_and_reported(
    outcomes: dict[str, dict[str, list[str]]], how: str
) -> None:
    # A relative path may be meant in a folder of labels that another cheat has left open.
    refused = ("tried to change", "no plugin may change it"), ("tried to open", "labels are sealed")
    tried, error = outcomes[how]["tried"][0], outcomes[how]["errors"][0]
    assert any(what in tried and why in error for what, why in refused)


def test_an_attempt_to_read_labels_fails_the_run_and_is_named(make: Make) -> None:
    last, folder, _ = make("from_file")
    assert isinstance(last, Failed), last
    assert "labels are sealed" in last.text
    assert last.text.startswith("cheat tried to ")
    assert not folder.finished
    assert json.loads(folder.error_file.read_text())["error"] == last.text


@pytest.mark.parametrize(
    "how", [*FINDS_NOTHING_IN_TRAINING, *(REFUSED_IN_TRAINING if kernel_can_lock() else ())]
)
def test_no_memory_and_no_thread_of_the_training_process_has_a_label(
    make: Make, how: str, tmp_path: Path
) -> None:
    honest, _, _ = make()
    last, _, _ = make(how)
    assert isinstance(last, Done)
    assert isinstance(honest, Done)
    assert last.map == honest.map
    assert "LookupError" in (tmp_path / "why").read_text()


@pytest.mark.parametrize("how", FINDS_NOTHING)
def test_there_is_no_label_to_find(outcomes: dict[str, dict[str, list[str]]], how: str) -> None:
    assert outcomes[how] == {"errors": ["LookupError()"], "tried": [], "noted": []}


@pytest.mark.skipif(not kernel_can_lock(), reason="this kernel has no Landlock")
@pytest.mark.parametrize("how", RACES)
def test_a_race_is_lost(outcomes: dict[str, dict[str, list[str]]], how: str) -> None:
    assert "PermissionError" in outcomes[how]["errors"][0]


@pytest.mark.parametrize("how", HIDES_ITS_ERROR)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_attempt_is_reported_whatever_becomes_of_its_error(
    outcomes: dict[str, dict[str, list[str]]], how: str
) -> None:
    assert re.match("tried to (open|list|start)", outcomes[how]["tried"][0])


@pytest.mark.skipif(not kernel_can_lock(), reason="this kernel has no Landlock")
@pytest.mark.parametrize("how", REFUSED_BY_THE_KERNEL)
def test_the_kernel_refuses_labels_to_native_code_and_other_programs(
    outcomes: dict[str, dict[str, list[str]]], how: str
) -> None:
    found = outcomes[how]
    assert found["errors"], "it got something"
    assert not found["tried"], "Python saw it: it belongs to REPORTED"
    assert not any(kind in found["errors"][0] for kind in ("NameError", "Attribute", "Lookup"))
    assert "ImportError" not in found["errors"][0]
    if how == "from_program":
        assert found["noted"] == ["started another program while it trained: cat"]


@pytest.mark.skipif(not kernel_can_lock(), reason="this kernel has no Landlock")
def test_a_refused_program_is_noted_in_the_result(make: Make, tmp_path: Path) -> None:
    honest, _, _ = make()
    last, folder, _ = make("from_program")
    assert isinstance(honest, Done)
    assert isinstance(last, Done), last
    assert last.map == honest.map
    (note,) = (n for n in json.loads(folder.result_file.read_text())["notes"] if "program" in n)
    assert note == "cheat started another program while it trained: cat"


def test_what_an_earlier_attempt_judged_is_deleted_before_training(
    make: Make, tmp_path: Path
) -> None:
    _, folder, _ = make("own_earlier_scores")
    assert folder.finished
    folder.result_file.unlink()
    last, _, _ = make("own_earlier_scores")
    assert isinstance(last, Done)
    assert "ValueError" in (tmp_path / "why").read_text()  # no such file: nothing to unpack
