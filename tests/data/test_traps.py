"""What is often wrong with a data set is told on its card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.data import Task, prepare
from ssmlbench.data.label_lists import LabelCounts
from ssmlbench.data.traps import label_notes, look_alikes
from ssmlbench.data.user_data import data_class
from tests.support.raw_layouts import jpeg, put

pytestmark = pytest.mark.usefixtures("empty_cache")


def read(folder: Path, **options: Any) -> Task:
    return prepare(data_class(DataAddress(str(folder), DataOptions(**options)))())


def write_leaks(kind: str, folder: Path) -> None:
    """Two of three test rows are training rows; one training row comes twice."""
    rows = {"train": [1, 2, 2, 3], "test": [2, 3, 4]}
    column = {"text": "text", "image": "image", "vector": "vector"}[kind]
    for split, numbers in rows.items():
        lines = [f"{column},labels"]
        for n in numbers:
            put(folder / f"{split}{n}.jpg", jpeg(n))
            spaced = f"Text  number {n}" if split == "test" else f"text number {n}"
            value = {"text": spaced, "image": f"{split}{n}.jpg", "vector": f"[{n} 0.5]"}[kind]
            lines.append(f"{value},a;b")
        put(folder / f"{split}.csv", "\n".join(lines))


@pytest.mark.parametrize("kind", ["text", "image", "vector"])
def test_inputs_in_train_and_test_are_counted_and_can_be_dropped(kind: str, tmp_path: Path) -> None:
    write_leaks(kind, tmp_path / "d")
    card = read(tmp_path / "d").card
    notes = "\n".join(card.notes)
    assert f"2 of 3 test rows have the {kind} of a training row" in notes
    assert "--drop-leaks" in notes
    assert f"1 train rows repeat the {kind} of an earlier train row" in notes
    dropped = read(tmp_path / "d", drop_leaks=True).card
    assert dropped.rows == {"train": 1, "test": 3}
    assert f"3 training rows were left out: test rows have their {kind}" in dropped.notes
    assert not [note for note in dropped.notes if "of a training row" in note]
    assert dropped.fingerprint != card.fingerprint


def test_labels_that_no_row_of_a_split_has_are_named(tmp_path: Path) -> None:
    put(tmp_path / "d/train.csv", "text,labels\nx,a\ny,b\n")
    put(tmp_path / "d/test.csv", "text,labels\nz,c;b\n")
    notes = read(tmp_path / "d").card.notes
    assert "1 of 3 labels have no train row: c" in notes
    assert "1 of 3 labels have no test row: a" in notes


def test_ids_that_start_again_are_told_and_are_no_error(tmp_path: Path) -> None:
    for split in ("train", "test"):
        put(tmp_path / f"d/{split}.csv", f"id,text,labels\n0,{split} a,x\n1,{split} b,x\n")
    notes = read(tmp_path / "d").card.notes
    assert any("ids start again in each split: 2 ids" in note for note in notes)


def test_labels_that_are_positive_or_unknown_are_told(tmp_path: Path) -> None:
    put(tmp_path / "d/train.csv", "text,a,b\nx,1,\ny,,1\n")
    assert any("if they mean no, write 0" in note for note in read(tmp_path / "d").card.notes)


def test_a_label_that_looks_like_a_missing_value_is_told(tmp_path: Path) -> None:
    put(tmp_path / "d/train.csv", "text,labels\nx,a\ny,null\n")
    assert any("'null' looks like a missing value" in n for n in read(tmp_path / "d").card.notes)


def test_rows_that_all_have_every_label_are_told(tmp_path: Path) -> None:
    """Lists of two that are 0 and 1 may be two ids: nothing in them says which."""
    put(tmp_path / "d/train.csv", 'text,labels\nx,"[0, 1]"\ny,"[0, 1]"\n')
    assert any("every training row has every label" in n for n in read(tmp_path / "d").card.notes)
    put(tmp_path / "e/train.csv", 'text,labels\nx,"[0, 1]"\ny,[1]\n')
    assert not any("every training row" in n for n in read(tmp_path / "e").card.notes)


def test_labels_written_as_bits_are_told(tmp_path: Path) -> None:
    put(tmp_path / "d/train.csv", "text,labels\nx,011\ny,100\n")
    assert any("look like a 0 or 1 for each label" in n for n in read(tmp_path / "d").card.notes)


def test_a_column_of_numbers_beside_those_of_labels_is_told(tmp_path: Path) -> None:
    put(tmp_path / "d/train.csv", "text,a,b,votes,by\nx,1,0,2,me\ny,0,1,0,you\n")
    card = read(tmp_path / "d").card
    assert card.label_names == ["a", "b"]
    assert [note for note in card.notes if "not used" in note] == [
        "not used, as they hold other numbers than 0 and 1: votes; --label-column names the columns "
        "of labels"
    ]


@pytest.mark.parametrize(
    ("names", "pairs"),
    [
        (["Sport", "sport"], [("Sport", "sport")]),
        (["hip-hop", "hip hop"], [("hip-hop", "hip hop")]),
        (["politcs", "politics"], [("politcs", "politics")]),
        (["color red", "colour red"], [("color red", "colour red")]),
        (["cat", "\uff43\uff41\uff54"], [("cat", "\uff43\uff41\uff54")]),  # wide letters
        (["centre", "center"], []),  # two letters differ
        (["cs.CV", "cs.CL", "cs.LG"], []),
        (["class10", "class11"], []),
        (["0", "1", "10"], []),
        (["C++", "C#", "C"], [("C", "C#"), ("C#", "C"), ("C++", "C"), ("C++", "C#")]),
    ],
)
def test_labels_that_look_alike(names: list[str], pairs: list[tuple[str, str]]) -> None:
    assert set(look_alikes(names)) <= set(pairs)
    assert bool(look_alikes(names)) == bool(pairs)


def test_many_labels_are_compared_in_no_time() -> None:
    names = [f"topic number {n} of the large collection" for n in range(5000)]
    assert look_alikes(names) == []


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["cat", "dog", "cat / dog"], "'cat / dog'"),
        (["cat", "dog", "cow", "cat+cow+dog"], "'cat+cow+dog'"),
        (["red", "green", "red green"], "'red green'"),
        (["cat", "dog", "cat-dog", "cat/bird", "c++"], ""),
    ],
)
def test_labels_that_are_joined_with_a_mark_that_was_not_named_are_told(
    names: list[str], told: str
) -> None:
    counts = LabelCounts(len(names))
    counts.add(list(range(len(names))))
    notes = [note for note in label_notes(names, {"train": counts}) if "several labels" in note]
    assert [told in note for note in notes] == ([True] if told else [])


def test_the_names_in_an_array_file_of_scikit_learns_words_are_labels(tmp_path: Path) -> None:
    inputs, labels = np.arange(12.0).reshape(4, 3), np.array([[1, 0], [0, 1], [1, 1], [0, 0]])
    words = {"target_names": ["x", "y"], "feature_names": ["a", "b", "c"]}
    np.savez(tmp_path / "toy.npz", data=inputs, target=labels, **words)
    card = prepare(data_class(tmp_path / "toy.npz")()).card
    assert card.label_names == ["x", "y"]
    assert card.positives["train"] == [2, 2]


@pytest.mark.parametrize("form", ["columns", "lists", "arrays"])
def test_labels_of_one_and_minus_one_are_asked_about(form: str, tmp_path: Path) -> None:
    truth = np.array([[1, -1, -1], [-1, 1, 1], [1, 1, -1]])
    folder = tmp_path / "d"
    folder.mkdir()
    table = pd.DataFrame({"text": ["first words", "other words", "more of them"]})
    if form == "columns":
        table = table.assign(**{name: truth[:, k] for k, name in enumerate("abc")})
        # The first cell of each column says whether it is one of labels.
        table.iloc[[1, 0, 2]].to_csv(folder / "train.csv", index=False)
        truth = truth[[1, 0, 2]]
    elif form == "lists":
        table.assign(labels=list(truth)).to_parquet(folder / "train.parquet")
    else:
        np.savez(folder / "train.npz", X=np.eye(3), Y=truth)
    options = {"label_column": "a,b,c"} if form == "columns" else {}
    with pytest.raises(UserError, match=r"1 and -1, and never 0.*--empty-labels none or"):
        read(folder, **options)
    for meaning, other in (("none", 0), ("unknown", -1)):
        task = read(folder, empty_labels=meaning, **options)
        assert task.truth("train").tolist() == np.where(truth == 1, 1, other).tolist()


@pytest.mark.parametrize("column", ["Split", "subset"])
def test_a_column_that_names_the_test_rows_is_not_passed_over(column: str, tmp_path: Path) -> None:
    file = tmp_path / "all.csv"
    put(file, f"text,labels,{column}\nx one,a,Train\ny two,b,Train\nz three,a;b,Test\n")
    with pytest.raises(UserError, match=f"column '{column}' says 'Train'; type --split-column"):
        read(file)
    assert read(file, split_column=column).card.rows == {"train": 2, "test": 1}
