"""Which folders and files are sealed, wherever data, results and code lie."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ssmlbench.core.events import Closing, Done
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.run_one import run_one
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs import seal, sealed_run
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.kernel_lock import kernel_can_lock
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.seal import SealedPlaces
from ssmlbench.runs.sealed_run import SealedRequest
from tests.faults.attacks.places import read_in_libc
from tests.faults.sealed_runs import in_child


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
        all_plugin_files=(),
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
    sealed_run._seal(request, SimpleNamespace(alarm=lambda: None, note=lambda text: None))
    assert there == [True]


@pytest.mark.skipif(not kernel_can_lock(), reason="this kernel has no Landlock")
@pytest.mark.parametrize("place", ["raw", "raw/test", "results", "results/noise"])
def test_python_imports_code_from_a_sealed_folder_and_nothing_else_is_read_there(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """`python -m ssmlbench` imports from the folder that it is started in."""
    folder = tmp_path / place
    for made in (tmp_path / "raw", tmp_path / "results", folder, folder / "package"):
        made.mkdir(exist_ok=True)
    for name in ("labels.csv", "module_of_mine.py", "package/__init__.py", "package/labels.csv"):
        (folder / name).write_text("secret = 1")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    context = RunContext(tmp_path / "results", "cpu", 1)
    spec = RunSpec("bce", "noise", pi=0.5)
    request = SealedRequest(spec, tmp_path / "task", (), context, str(tmp_path / "raw"))

    def read() -> str:
        sys.dont_write_bytecode = True
        sealed_run._seal(request, SimpleNamespace(alarm=lambda: None, note=lambda text: None))  # type: ignore[arg-type]
        found = []
        for name in (
            "labels.csv",
            "module_of_mine.py",
            "package/__init__.py",
            "package/labels.csv",
        ):
            try:
                found.append(len(read_in_libc(folder / name)))
            except OSError:
                found.append(0)
        return json.dumps(found)

    assert json.loads(in_child(read)) == [0, 10, 10, 0]


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
