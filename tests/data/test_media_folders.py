"""Images and texts in files of their own: tables that name them, folders of labels, unlabelled ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.core.plain_files import plain_bytes
from ssmlbench.data import Task, label_folders, prepare
from ssmlbench.data.adapter import InputColumns
from ssmlbench.data.plain_inputs import plain_inputs
from ssmlbench.data.task import inputs_file
from ssmlbench.data.user_data import data_class

Known = dict[str, set[str] | None]
"""Id of a training row → its labels; None: it is unlabelled."""


pytestmark = pytest.mark.usefixtures("empty_cache")


def read(path: Path, **options: Any) -> Task:
    return prepare(data_class(DataAddress(str(path), DataOptions(**options)))())


def known(task: Task, split: str = "train") -> Known:
    names = task.card.label_names
    return {
        id_: None if (row < 0).all() else {names[k] for k in np.flatnonzero(row == 1)}
        for id_, row in zip(task.ids(split), task.truth(split), strict=True)
    }


def image(file: Path, shade: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4), (shade, 0, 0)).save(file)


def text(file: Path, shade: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"text number {shade}")


def table(file: Path, /, **columns: list[Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(columns)
    if file.suffix == ".jsonl":
        frame.to_json(file, orient="records", lines=True)
    else:
        frame.to_csv(file, index=False)


Write = Callable[[Path, int], None]
KINDS = pytest.mark.parametrize(
    ("kind", "write", "end"), [("image", image, "png"), ("text", text, "txt")]
)


@KINDS
@pytest.mark.parametrize("column", ["file", "filename", "photo"])
@pytest.mark.parametrize("typed", ["{}", "files/{}"])
def test_what_the_table_of_labels_does_not_name_is_unlabelled(
    kind: str, write: Write, end: str, column: str, typed: str, tmp_path: Path
) -> None:
    home = tmp_path / "mine"
    for number in range(5):
        write(home / f"files/{number}.{end}", number)
    names = [typed.format(f"{number}.{end}") for number in (3, 0)]
    table(home / "labels.csv", **{column: names, "labels": ["red;big", "red"]})
    (home / "README.txt").write_text("about it")
    task = read(home)
    assert task.card.kind == kind
    assert known(task) == {
        names[0]: {"red", "big"},
        names[1]: {"red"},
        **{f"files/{number}.{end}": None for number in (1, 2, 4)},
    }
    assert any(note.startswith(f"3 {kind}s are unlabelled") for note in task.card.notes)


@KINDS
def test_a_folder_for_each_label(kind: str, write: Write, end: str, tmp_path: Path) -> None:
    home = tmp_path / "mine"
    for label, shade in (("red", 1), ("big", 1), ("big", 2)):
        write(home / label / f"{shade}.{end}", shade)
    write(home / "red" / f"other.{end}", 7)  # one name, two files
    write(home / "big" / f"other.{end}", 8)
    write(home / "test" / "red" / f"9.{end}", 9)
    write(home / "unlabelled" / "deep" / f"4.{end}", 4)
    task = read(home)
    assert (task.card.kind, task.card.label_names) == (kind, ["big", "red"])
    assert known(task) == {
        f"1.{end}": {"red", "big"},
        f"2.{end}": {"big"},
        f"red/other.{end}": {"red"},
        f"big/other.{end}": {"big"},
        f"unlabelled/deep/4.{end}": None,
    }
    assert known(task, "test") == {f"9.{end}": {"red"}}


@KINDS
def test_neither_the_order_of_rows_nor_what_training_reads_tells_the_folder_of_a_file(
    kind: str, write: Write, end: str, tmp_path: Path
) -> None:
    """Files of one name in every folder, and files that are named after their label."""
    stored = []
    for one, two in (("cat", "dog"), ("dog", "cat")):
        home = tmp_path / one / "mine"
        for number in range(6):
            write(home / one / f"{number}.{end}", number)
            write(home / two / f"{number}.{end}", 10 + number)
            write(home / one / f"{one}-{number}.{end}", 20 + number)
            write(home / two / f"{two}-{number}.{end}", 30 + number)
        task = read(home)
        assert known(task)[f"cat/3.{end}"] == {"cat"}
        stored.append(inputs_file(task.folder, "train").read_bytes())
    assert b"cat" not in stored[0]
    assert stored[0] == stored[1]


def test_each_file_of_the_label_folders_is_hashed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are read for the held-out rows, for leaks into them and for both splits."""
    for number in range(12):
        text(tmp_path / "mine" / "ab"[number % 2] / f"{number}.txt", number)
    hashed: Counter[str] = Counter()

    def counting(file: Path) -> bytes:
        hashed[file.name] += 1
        return plain_bytes(file)

    monkeypatch.setattr(label_folders, "plain_bytes", counting)
    task = read(tmp_path / "mine", holdout=0.25, drop_leaks=True)
    assert task.card.rows == {"train": 9, "test": 3}
    assert hashed == {f"{number}.txt": 1 for number in range(12)}


def test_a_file_of_the_label_folders_that_has_changed_is_hashed_again(tmp_path: Path) -> None:
    for number in range(3):
        text(tmp_path / "mine" / "a" / f"{number}.txt", number)
        text(tmp_path / "mine" / "b" / f"{number}.txt", number)
    adapter = data_class(DataAddress(str(tmp_path / "mine"), DataOptions()))()
    assert known(prepare(adapter))["1.txt"] == {"a", "b"}
    text(tmp_path / "mine" / "b" / "1.txt", 70)
    assert known(prepare(adapter))["b/1.txt"] == {"b"}


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_rows_that_are_sorted_by_label_are_noted(tmp_path: Path, order: str) -> None:
    labels = ["a", "b", "a;b", "c", "b;c"] * 8
    rows = sorted(labels) if order == "sorted" else labels
    table(tmp_path / "mine" / "train.csv", text=[f"row {k}" for k in range(40)], labels=rows)
    text(tmp_path / "mine" / "unlabelled/1.txt", 1)
    noted = any("sorted by label" in note for note in read(tmp_path / "mine").card.notes)
    assert noted == (order == "sorted")


@KINDS
def test_an_unlabelled_folder_beside_a_train_table(
    kind: str, write: Write, end: str, tmp_path: Path
) -> None:
    home = tmp_path / "mine"
    for number in range(4):
        write(home / f"{'unlabeled' if number > 1 else 'files'}/{number}.{end}", number)
    paths = [f"files/{number}.{end}" for number in range(2)]
    table(home / "train.jsonl", path=paths, labels=[["a", "b"], []])
    write(home / f"files/not-named.{end}", 9)  # a train table names the training rows
    assert known(read(home)) == {
        paths[0]: {"a", "b"},
        paths[1]: set(),
        **{f"unlabeled/{number}.{end}": None for number in (2, 3)},
    }


def test_texts_in_a_table_and_unlabelled_ones_in_files(tmp_path: Path) -> None:
    home = tmp_path / "mine"
    table(home / "articles.csv", text=["one", "two"], labels=["a", "b"])
    text(home / "unlabelled/3.txt", 3)
    task = read(home)
    assert list(task.inputs("train")[:]) == ["one", "two", "text number 3"]
    assert task.card.unlabelled["train"] == 1


def test_the_image_folders_of_hugging_face(tmp_path: Path) -> None:
    home = tmp_path / "mine"
    for split, shade in (("train", 1), ("test", 2)):
        image(home / split / "0001.png", shade)
        table(home / split / "metadata.csv", file_name=["0001.png"], red=[1], big=[shade - 1])
    task = read(home)
    assert known(task) == {"0001.png": {"red"}}
    assert known(task, "test") == {"0001.png": {"red", "big"}}
    shades = [int(np.asarray(task.inputs(split)[0])[0, 0, 0]) for split in ("train", "test")]
    assert shades == [1, 2]


def test_the_only_table_of_a_folder_may_have_a_split_column(tmp_path: Path) -> None:
    home = tmp_path / "mine"
    for number in range(3):
        image(home / "images" / f"a{number}.jpg", number * 90)
    rows = {"image_id": ["a0", "a1"], "tags": ["x y", "y"], "split": ["train", "test"]}
    table(home / "annotations.csv", **rows)
    task = read(home, image_column="image_id", label_column="tags", label_separator=" ")
    assert known(task) == {"a0": {"x", "y"}, "images/a2.jpg": None}
    assert known(task, "test") == {"a1": {"y"}}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["images/1.png", "images/2.png"], "in no folders of labels, and no table names"),
        (["a/1.png", "b/2.png", "3.png"], "put rows without labels into unlabelled/"),
        (
            ["one/1.png", "two/1.png", "labels.csv"],
            "may be one/1.png and two/1.png; write the path",
        ),
        (["one/2.png", "labels.csv"], "image 1.png does not exist"),
    ],
)
def test_what_is_not_clear_is_told(files: list[str], message: str, tmp_path: Path) -> None:
    for shade, name in enumerate(files):
        if name.endswith(".csv"):
            table(tmp_path / "mine" / name, image=["1.png"], labels=["a"])
        else:
            image(tmp_path / "mine" / name, shade)
    with pytest.raises(UserError, match=message):
        read(tmp_path / "mine")


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    image(tmp_path / "outside.png", 1)
    for label in ("a", "b"):
        image(tmp_path / "mine" / label / f"{label}.png", 2)
    (tmp_path / "mine" / "a" / "link.png").symlink_to(tmp_path / "outside.png")
    with pytest.raises(UserError, match="outside the data folder; --allow-outside reads it"):
        read(tmp_path / "mine")
    assert len(known(read(tmp_path / "mine", allow_outside=True))) == 3


def test_an_image_that_two_rows_name_keeps_both_rows(tmp_path: Path) -> None:
    home = tmp_path / "mine"
    image(home / "1.png", 1)
    table(home / "train.csv", image=["1.png", "1.png"], labels=["a", "b"])
    assert known(read(home)) == {"1.png": {"a"}, "train.csv line 3": {"b"}}


def test_new_rows_that_are_files_have_their_paths_as_ids(tmp_path: Path) -> None:
    image(tmp_path / "new/1.png", 1)
    text(tmp_path / "new/1.txt", 1)
    table(tmp_path / "new/pictures.csv", photo=["1.png"])
    table(tmp_path / "new/texts.csv", file=["1.txt"])
    ((id_, _),) = plain_inputs(
        tmp_path / "new/pictures.csv", "image", None, InputColumns(("photo",))
    )
    assert id_ == "1.png"
    rows = plain_inputs(tmp_path / "new/texts.csv", "text", None, InputColumns(("file",)))
    assert list(rows) == [("1.txt", "text number 1")]
