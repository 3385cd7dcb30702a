"""Labels lie in files of their own: what training opens holds none of them."""

from __future__ import annotations

from pathlib import Path

import datasets
from ssmlbench.data import Task, prepare
from ssmlbench.data.task import LABELS, inputs_file
from ssmlbench.plugins.loader import Plugins


def test_inputs_and_labels_are_in_separate_files(plugins: Plugins) -> None:
    task = prepare(plugins.datasets["multidigits"]())
    for split in task.splits:
        stored = datasets.Dataset.from_file(str(inputs_file(task.folder, split)))
        assert stored.column_names == ["input"], "ids may name labels"
        assert len(stored) == len(task.truth(split))


def test_inputs_can_be_read_without_the_labels(plugins: Plugins, tmp_path: Path) -> None:
    task = prepare(plugins.datasets["multidigits"]())
    for file in task.folder.iterdir():
        if file.name not in (LABELS, "card.json"):
            (tmp_path / file.name).symlink_to(file)
    bare = Task(tmp_path, task.card.for_training())
    assert len(bare.inputs("train")) == len(task.inputs("train"))
    assert not bare.card.positives
