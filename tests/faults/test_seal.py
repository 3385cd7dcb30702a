"""Attacks on the seal and on the process: what cannot succeed, what is reported, what is survived."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from ssmlbench.core.events import Closing, Done, Event, Failed, Retried, Warned
from ssmlbench.core.files import temporary_beside
from ssmlbench.core.paths import cache_root
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid import run_one as run_one_module
from ssmlbench.grid.run_one import run_one
from ssmlbench.plugins import watch
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs import seal, sealed_run
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import open_task
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.kernel_lock import kernel_can_lock
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.seal import SealedPlaces
from ssmlbench.runs.sealed_run import SealedRequest
from tests.faults.attacks.catalogue import (
    FINDS_NOTHING,
    FINDS_NOTHING_IN_TRAINING,
    HIDES_ITS_ERROR,
    RACES,
    REFUSED_BY_THE_KERNEL,
    REPORTED,
    REPORTED_STEALS,
    STEALS_REFUSED_BY_THE_KERNEL,
    WAYS,
)
from tests.faults.attacks.file_changes import CHANGES

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


def test_every_cheat_is_in_one_of_the_lists() -> None:
    listed = *REPORTED_STEALS, *FINDS_NOTHING_IN_TRAINING, *STEALS_REFUSED_BY_THE_KERNEL
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
    other_labels = folder / "usual" / "ssmlbench" / "tasks" / "noise-v1.8" / "labels"
    other_labels.mkdir(parents=True)
    shutil.copy(task / "labels" / "test.arrow", other_labels)
    (folder / "made-before").hardlink_to(task / "labels" / "test.arrow")
    (folder / "results-logs" / "tensorboard").mkdir(parents=True)
    (folder / "results-logs" / "tensorboard" / "events.1").write_text("map 0.4")
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
    (folder / "made-before").unlink()
    return found


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
        if name in FINDS_NOTHING_IN_TRAINING:
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


@pytest.mark.parametrize("how", FINDS_NOTHING_IN_TRAINING)
def test_the_memory_of_the_training_process_holds_no_label(
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
    assert re.match("tried to (open|list)", outcomes[how]["tried"][0])


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


def test_a_run_that_is_made_again_says_which_file_was_damaged(make: Make) -> None:
    _, folder, _ = make(method="bce")
    folder.history_file.write_text("")
    _, again, events = make(method="bce")
    assert again.finished
    (warned,) = (event for event in events if isinstance(event, Warned) and "damaged" in event.text)
    assert "history.csv" in warned.text


def test_folders_of_labels_below_a_folder_that_python_imports_from_are_not_listed(
    tmp_path: Path,
) -> None:
    """Data are often below the working folder, of which Python imports."""
    for name in ("raw/test/cat", "raw/plugins/parts", "raw/.hidden"):
        (tmp_path / name).mkdir(parents=True)
    places = SealedPlaces.of(str(tmp_path / "raw"), tmp_path / "results", tmp_path)
    lists_labels = seal._lists_labels(places, [tmp_path, tmp_path / "raw" / "plugins" / "parts"])
    assert lists_labels(tmp_path / "raw" / "test" / "cat")
    for name in ("", "raw", "raw/plugins", "raw/plugins/parts", "raw/.hidden"):
        assert not lists_labels(str(tmp_path / name))


def test_trials_are_sealed_with_the_results_they_lie_in(tmp_path: Path) -> None:
    results = tmp_path / "results"
    for folder in (results, results / ".tune"):
        assert SealedPlaces.of("", folder, tmp_path).results == str(results)


def test_a_data_set_of_the_hub_is_sealed_with_the_files_that_its_links_point_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "datasets--owner--name"
    snapshot = repository / "snapshots" / "0"
    snapshot.mkdir(parents=True)
    for source in (str(snapshot), "owner/name@0"):
        assert str(repository) in SealedPlaces.of(source, tmp_path / "results", tmp_path).copies


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
        ("writes a result and kills the judge", "its judge process died"),
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
    assert any(isinstance(event, Retried) for event in events) == ("kill" in how)
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


def test_what_a_plugin_does_to_its_modules_reaches_no_judge(make: Make) -> None:
    last, folder, _ = make("changes modules")
    assert folder.finished == isinstance(last, Done)
    assert isinstance(make(method="bce")[0], Done)


def test_what_a_plugin_does_to_its_process_reaches_no_other_run(make: Make) -> None:
    _, alone, _ = make(method="bce")
    before = alone.scores_file.read_bytes()
    for file in alone.path.iterdir():
        file.unlink()
    make("changes the process")
    assert isinstance(make(method="bce")[0], Done)
    assert alone.scores_file.read_bytes() == before


def test_a_plugin_file_changes_no_run_of_another_method_or_encoder(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its code does when it is imported: it is not imported there."""
    monkeypatch.setattr(torch.optim.AdamW, "step", torch.optim.AdamW.step)  # put back afterwards
    _, alone, _ = make(method="bce")
    file = tmp_path / "sabotage.py"
    file.write_text(SABOTAGE)
    plugins, results = Plugins([CHEATS, file]), tmp_path / "beside"
    fields: dict[str, Any] = {"dataset": "noise", "epochs": 3, "pi": 0.5, "seed": 0}
    last = {}
    for method in ("bce", "saboteur"):
        spec = resolve(plugins, {}, method=method, **fields)
        last[method] = run_one(spec, plugins, RunContext(results, "cpu", 1), lambda event: None)
        if method == "bce":
            beside = RunFolder.of(results, spec)
    assert isinstance(last["bce"], Done)
    assert beside.scores_file.read_bytes() == alone.scores_file.read_bytes()
    assert "its own run" in getattr(last["saboteur"], "text", ""), "its own file is imported"


SABOTAGE = """
import torch
from ssmlbench.api import Method

def step(*rest, **more):
    raise RuntimeError("its own run")

torch.optim.AdamW.step = step

class Saboteur(Method):
    \"\"\"Learns nothing, and wants no other to learn.\"\"\"

    name = "saboteur"

    def loss(self, labelled, unlabelled):
        return {"labelled": labelled.logits("strong").square().mean()}
"""


def test_a_sealed_run_has_the_bits_of_a_run_in_one_process(make: Make, tmp_path: Path) -> None:
    from ssmlbench.runs.execute import execute

    plugins = Plugins([CHEATS])
    for fields in ({}, {"selection": "val"}, {"selection": "oracle"}):
        _, folder, _ = make(method="cap", fields=fields)
        spec = resolve(
            plugins, {}, method="cap", dataset="noise", epochs=3, pi=0.5, seed=0, **fields
        )
        execute(spec, plugins, RunContext(tmp_path / "together", "cpu", 1))
        other = RunFolder.of(tmp_path / "together", spec)
        one, two = load_file(folder.scores_file), load_file(other.scores_file)
        assert one.keys() == two.keys()
        assert all((one[name] == two[name]).all() for name in one)
        columns = [f.history_file.read_text().splitlines()[0] for f in (folder, other)]
        assert columns[0] == columns[1]
        results = [json.loads(f.result_file.read_text()) for f in (folder, other)]
        assert results[0].keys() == results[1].keys()
        for part in ("spec", "metrics", "data", "observation"):
            assert results[0][part] == results[1][part]
        assert results[0]["data"]["unlike_published"] == ["train rows: 80 here, 800 published"]


def test_nothing_of_a_run_outlives_it(make: Make) -> None:
    _, folder, _ = make(method="bce")
    left = {file.name for file in folder.path.iterdir()}
    assert folder.result_file.name in left
    assert not any(name.startswith((".", "checkpoint", "judgements", "progress")) for name in left)


def test_the_folder_of_a_run_is_there_before_the_kernel_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = RunSpec("bce", "noise", pi=0.5)
    context = RunContext(tmp_path / "new" / "results", "cpu", 1)
    request = SimpleNamespace(
        source="",
        context=context,
        spec=spec,
        plugin_files=(),
        scratch=tmp_path,
        task_folder=tmp_path,
        label_folders=False,
    )
    there = []
    folder = RunFolder.of(context.results, spec).path
    monkeypatch.setattr(
        sealed_run, "lock_labels", lambda *rest: there.append(folder.is_dir()) or True
    )
    monkeypatch.setattr(sealed_run, "set_tripwire", lambda *rest: None)
    sealed_run._seal(request, SimpleNamespace(alarm=lambda: None, note=None))
    assert there == [True]


THIEF = """
from dataclasses import dataclass
from ssmlbench.api import Method, bce

class Thief(Method):
    \"\"\"Reads the file that the data set was made of, if it is told to.\"\"\"

    name = "thief"

    @dataclass(frozen=True)
    class Config(Method.Config):
        steals: str = ""

    def loss(self, labelled, unlabelled):
        if self.config.steals:
            open(self.config.steals, "rb").read()
        return {"labelled": bce(labelled.logits("strong"), labelled.observed.float()).mean()}
"""


def test_own_data_may_lie_above_the_folders_that_a_run_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`~/data.npz` with the cache in `~/.cache`: the data's folder is sealed, what a run needs is not."""
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / ".cache"))
    random = np.random.default_rng(0)
    data = tmp_path / "data.npz"
    labels = (random.random((90, 4)) < 0.4).astype(np.int8)
    np.savez(data, X_train=labels * random.random(), y_train=labels, X_test=labels, y_test=labels)
    (tmp_path / "thief.py").write_text(THIEF)
    plugins = Plugins([tmp_path / "thief.py"])
    dataset = plugins.data_set(str(data))

    def last_event(steals: str) -> Closing:
        fields = {"method": "thief", "dataset": dataset, "pi": 0.5, "epochs": 2}
        spec = resolve(plugins, {"steals": steals}, **fields)
        return run_one(spec, plugins, RunContext(tmp_path / "results", "cpu", 1), lambda e: None)

    assert isinstance(last_event(""), Done)
    assert "labels are sealed" in getattr(last_event(str(data)), "text", "")


@pytest.mark.parametrize("method", ["thief", "bce"])
def test_a_plugin_that_trains_on_label_folders_is_noted(tmp_path: Path, method: str) -> None:
    """Whether a file of a name exists in the folder of a label can be asked without opening it."""
    for number in range(24):
        file = (
            tmp_path / "mine" / ("test" if number % 3 else ".") / "ab"[number % 2] / f"{number}.txt"
        )
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"text number {number}")
    (tmp_path / "thief.py").write_text(THIEF)
    plugins = Plugins([tmp_path / "thief.py"])
    fields = {"dataset": plugins.data_set(str(tmp_path / "mine")), "pi": 0.5, "epochs": 2}
    spec = resolve(plugins, {}, method=method, backbone="tfidf", freeze=True, **fields)
    context = RunContext(tmp_path / "results", "cpu", 1)
    assert isinstance(run_one(spec, plugins, context, lambda event: None), Done)
    notes = json.loads(RunFolder.of(context.results, spec).result_file.read_text())["notes"]
    assert any("names are not sealed" in note for note in notes) == (method == "thief")
