"""Files of older versions are read or refused with a reason: samples that those versions wrote."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from ssmlbench.boards.from_python import compare
from ssmlbench.core.checksums import FIELD, UNSTAMPED, stamp
from ssmlbench.core.errors import DamageWarning
from ssmlbench.core.events import Event, Warned
from ssmlbench.core.files import write_json
from ssmlbench.data import prepare
from ssmlbench.data.prepare import TASK_FORMAT, _folder
from ssmlbench.data.task import Task
from ssmlbench.inputs.cache_folders import FeatureFolder
from ssmlbench.inputs.shards import ShardFolder
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.finished import read_finished, read_spec
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.schema import RESULT_VERSION
from ssmlbench.runs.scores import StoredScores
from ssmlbench.training.checkpoint import Checkpoint
from tests.support.tiny_models import write_data_plugin

SAMPLES = Path(__file__).parent.parent / "samples"
VERSIONS = [1, 2, 3]
"""Version 3 as it was at first, before the results of each label and the ids of rows."""


def test_every_older_version_of_a_result_has_a_sample() -> None:
    assert list(range(1, RESULT_VERSION + 1)) == VERSIONS, "add a sample of the last version"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_result_of_an_older_version_is_read_with_its_scores(version: int) -> None:
    root = SAMPLES / "runs" / f"version-{version}"
    runs, complaints = read_finished([root])
    assert not complaints
    (run,) = runs
    stored = json.loads((run.folder / "result.json").read_text())
    assert stored.get("version", 1) == version
    assert run.result["metrics"] == stored["metrics"]
    scores = StoredScores.read(run.folder)
    assert scores.scores.shape == scores.truth.shape == (20, 3)
    assert RunFolder(run.folder).finished
    assert read_spec(run.folder / "spec.json") == run.spec
    printed = compare(root, metric="map").to_markdown()
    assert f"{stored['metrics']['calibrated']['default']['map']:.4f}"[1:] in printed


def test_a_result_of_a_newer_version_with_an_unknown_field_is_left_out_with_the_reason(
    tmp_path: Path,
) -> None:
    root = tmp_path / "results"
    shutil.copytree(SAMPLES / "runs" / "version-2", root)
    (file,) = root.rglob("result.json")
    values = json.loads(file.read_text())
    values |= {"version": RESULT_VERSION + 1, "spec": {**values["spec"], "moon_phase": "full"}}
    file.write_text(json.dumps({**values, "checksum": ""}))
    runs, complaints = read_finished([root])
    assert not runs
    assert "damaged" in complaints[0], "its checksum is wrong"
    write_json(file, values)
    runs, complaints = read_finished([root])
    assert not runs
    assert "moon_phase" in complaints[0]
    assert f"reads up to {RESULT_VERSION}" in complaints[0]
    assert RunFolder(file.parent).finished, "it is whole: it must not be made again"


@pytest.mark.parametrize("format_", [2, 3, 4])
def test_a_task_of_an_older_format_is_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: int
) -> None:
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    adapter = Plugins([write_data_plugin(tmp_path)]).datasets["tiny-vectors"]()
    old = tmp_path / "cache" / "tasks" / f"tiny-vectors-v1.{format_}"
    shutil.copytree(SAMPLES / "tasks" / f"format-{format_}", old)
    assert prepare(adapter).folder != old
    shutil.rmtree(_folder(adapter))
    shutil.copytree(old, _folder(adapter))  # even under the name of this version
    with pytest.warns(DamageWarning, match="card.json is damaged: it has no checksum"):
        task = prepare(adapter)
    assert task.card.files


@pytest.mark.parametrize("format_", [5, 6, 7, 8])
def test_a_task_of_a_format_with_checksums_is_read_where_it_lies_and_prepared_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: int
) -> None:
    """Format 5 lacks the names of columns and folder; files of 6 may be misread tables or images; inputs of
    7 have ids, which may name labels; files of 8 may be misread too."""
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "tasks" / f"tiny-vectors-v1.{format_}"
    shutil.copytree(SAMPLES / "tasks" / f"format-{format_}", folder)
    task = Task(folder)
    task.verify()
    assert task.truth("test").shape == (20, 3)
    assert (
        prepare(Plugins([write_data_plugin(tmp_path)]).datasets["tiny-vectors"]()).folder != folder
    )
    assert TASK_FORMAT == 9, "add a sample of the last format"


def test_a_checkpoint_without_a_checksum_is_not_continued_from(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.safetensors"
    save_file({"network/w": torch.zeros(2)}, file, metadata={"facts": json.dumps({"epoch": 3})})
    with pytest.warns(DamageWarning, match="no checksum; the run starts from its beginning"):
        assert Checkpoint(file).read() is None
    assert not file.exists()


def test_cached_rows_that_do_not_say_where_they_belong_are_made_again(tmp_path: Path) -> None:
    folder = ShardFolder(tmp_path / "digits-train-plain-0123")
    folder.path.mkdir()
    for number in range(2):
        file = folder.shard_file(number)
        np.save(file, np.full((3, 2), number))
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        file.write_bytes(file.read_bytes() + b"\nsha256=" + digest.encode())
    write_json(folder.about_file, {"dataset": "digits", "shards": 2})
    assert not folder.complete
    damaged = folder.damaged()
    assert {damage.file.name for damage in damaged} == {"about.json", "00000.npy", "00001.npy"}
    assert all("an older version wrote it" in damage.reason for damage in damaged)
    said: list[Event] = []
    assert folder.discard(damaged, said.append, "computed")
    (warned,) = said
    assert isinstance(warned, Warned)
    assert warned.text.endswith("it is computed again, as are 2 other files beside it")
    assert not list(folder.path.iterdir())


def test_the_state_of_an_encoder_that_does_not_say_where_it_belongs_is_fitted_again(
    tmp_path: Path,
) -> None:
    folder = FeatureFolder(tmp_path)
    save_file({"idf": torch.zeros(2)}, folder.state_file, metadata={FIELD: UNSTAMPED})
    stamp(folder.state_file)
    (damage,) = folder.damaged_state()
    assert "an older version wrote it" in damage.reason
