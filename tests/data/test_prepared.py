"""A prepared data set is found by its content, whatever else the cache holds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ssmlbench.core.files import write_json
from ssmlbench.data import Task, prepare
from ssmlbench.data.prepared import NotPrepared, prepared_task
from ssmlbench.plugins.loader import Plugins


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.csv").write_text("text,labels\none,a\ntwo,b\n")
    plugins = Plugins()
    return prepare(plugins.datasets[plugins.data_set(str(tmp_path / "mine"))]())


def of_an_older_version(copy: Path) -> None:
    card = json.loads((copy / "card.json").read_text())
    (copy / "card.json").unlink()
    write_json(copy / "card.json", {"name": card["name"], "fingerprint": card["fingerprint"]})


def without_its_inputs(copy: Path) -> None:
    (copy / "train.arrow").unlink()


def with_half_a_card(copy: Path) -> None:
    text = (copy / "card.json").read_text()
    (copy / "card.json").write_text(text[: len(text) // 2])


def without_a_card(copy: Path) -> None:
    (copy / "card.json").unlink()


@pytest.mark.parametrize(
    "damage", [of_an_older_version, without_its_inputs, with_half_a_card, without_a_card]
)
def test_a_sound_copy_is_found_beside_one_that_cannot_be_used(
    task: Task, damage: Callable[[Path], None]
) -> None:
    copy = shutil.copytree(task.folder, task.folder.with_name("a-v1.9"))  # the first by name
    damage(copy)
    assert prepared_task("mine", task.card.fingerprint).folder == task.folder
    shutil.rmtree(task.folder)
    with pytest.raises(NotPrepared, match="data set mine is not prepared on this machine") as found:
        prepared_task("mine", task.card.fingerprint)
    assert (" is damaged: " in str(found.value)) == (damage is not without_a_card)


def test_a_copy_that_was_never_finished_is_not_used(task: Task) -> None:
    task.folder.rename(task.folder.with_name(f"{task.folder.name}.unfinished"))
    with pytest.raises(NotPrepared, match=r"not prepared on this machine$"):
        prepared_task("mine", task.card.fingerprint)


def test_the_damage_of_the_data_set_itself_is_named_first(task: Task) -> None:
    with_half_a_card(shutil.copytree(task.folder, task.folder.with_name("a-v1.9")))
    without_its_inputs(task.folder)
    with pytest.raises(NotPrepared, match=r"train\.arrow is damaged"):
        prepared_task("mine", task.card.fingerprint)
