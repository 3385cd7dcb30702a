"""The same content in other spellings is read alike, or refused in one line; it is never read as less."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ssmlbench.core.errors import UserError
from tests.support.own_data import read
from tests.support.raw_layouts import jpeg, put

Write = Callable[[Path], object]
TRAIN = "text,a,b\nw,1,0\nx,0,1\ny,1,1\nz,0,0\n"
TEST = "text,a,b\nu,1,0\nv,0,1\n"


pytestmark = pytest.mark.usefixtures("empty_cache")


def files(**contents: str | bytes) -> Write:
    """A writer of files; `train_csv` stands for train.csv."""

    def write(folder: Path) -> None:
        for name, content in contents.items():
            put(folder / ".".join(name.rsplit("_", 1)), content)

    return write


def lines(*records: dict[str, object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def with_b(*cells: str) -> str:
    """The training rows with other cells of label b, which is 0, 1, 1, 0."""
    rows = zip("wxyz", "1010", cells, strict=True)
    return "text,a,b\n" + "".join(f"{text},{a},{b}\n" for text, a, b in rows)


@pytest.mark.parametrize(
    "cells",
    [
        ("0.00", "1.00", "1.00", "0.00"),
        ("0e0", "1e0", "1.000000000000000000e+00", "0"),
        ("-0", "+1", "01", "-0.0"),
        ("1.", "0.", "0.", "1."),
    ],
)
def test_zero_and_one_are_read_in_any_spelling(tmp_path: Path, cells: tuple[str, ...]) -> None:
    files(train_csv=with_b(*cells), test_csv=TEST)(tmp_path / "d")
    task = read(tmp_path / "d")
    assert task.card.label_names == ["a", "b"]
    assert task.truth("train")[:, 1].tolist() == [int(float(cell)) for cell in cells]


@pytest.mark.parametrize(
    "cells",
    [
        ("2", "1", "1", "0"),
        ("0.5", "1", "1", "0"),
        ("NA", "1", "1", "NA"),
        ("neg", "pos", "pos", "neg"),
        ("", "x", "x", ""),
        ("✗", "✓", "✓", "✗"),
        ("'0'", "'1'", "'1'", "'0'"),
        ('"0,0"', '"1,0"', '"1,0"', '"0,0"'),
    ],
)
def test_a_column_that_may_be_a_label_is_not_left_out(
    tmp_path: Path, cells: tuple[str, ...]
) -> None:
    files(train_csv=with_b(*cells), test_csv=TEST)(tmp_path / "d")
    with pytest.raises(UserError, match="column 'b' says"):
        read(tmp_path / "d")


def test_counts_beside_labels_are_left_out_as_before(tmp_path: Path) -> None:
    files(train_csv=with_b("2", "0", "5", "1"))(tmp_path / "d")
    assert read(tmp_path / "d").card.label_names == ["a"]


def test_joined_ids_may_be_floats(tmp_path: Path) -> None:
    files(train_csv="text,labels\nx,1.0;2.0\ny,2.0\n", test_csv="text,labels\nz,1\n")(
        tmp_path / "d"
    )
    task = read(tmp_path / "d")
    assert task.card.label_names == ["1", "2"]
    assert task.truth("train").tolist() == [[1, 1], [0, 1]]


SHARDS = {f"train-{k}_csv": f"text,labels\nt{k},a;b\n" for k in range(2)}
A_AND_B = lines({"text": "x", "labels": ["a"]}, {"text": "y", "labels": ["b"]})
TWO = "text,labels\nx,a\ny,b\n"
X = np.eye(3)
REFUSED: dict[str, tuple[Write, str]] = {
    "1 and 01": (
        files(train_csv=TWO + "z,1\n", test_csv="text,labels\nx,01\n"),
        "are one number",
    ),
    "1 and 1.0 in lists": (
        files(train_jsonl=lines({"text": "x", "labels": ["1.0"]}, {"text": "y", "labels": ["1"]})),
        "are one number",
    ),
    "two Unicode forms": (
        files(train_csv=TWO + "z,caf\xe9\n", test_csv="text,labels\nx,cafe\u0301\n"),
        "look the same",
    ),
    "two kinds of spaces": (
        files(train_csv=TWO + "z,a b\n", test_csv="text,labels\nx,a\xa0b\n"),
        "look the same",
    ),
    "quotes around all labels": (
        files(train_csv="text,labels\nx,'a;b'\n"),
        "not a list",
    ),
    "another name of the column of labels": (
        files(train_jsonl=A_AND_B, test_jsonl=A_AND_B.replace("labels", "Labels")),
        "no column 'labels'",
    ),
    "a split that the first row has not": (
        files(
            data_jsonl=lines(
                {"text": "x", "labels": ["a"]}, {"text": "y", "labels": ["b"], "split": "test"}
            )
        ),
        "has the column 'split'",
    ),
    "a back-translation that the first row has not": (
        files(
            train_jsonl=lines(
                {"text": "x", "labels": ["a"]},
                {"text": "y", "labels": ["b"], "back_translation": "z"},
            )
        ),
        "back_translation is not in the first",
    ),
    "a shard that is not there": (
        files(**{"train-00000-of-00002_csv": TWO}),
        "one of 2 shards",
    ),
    "shards of two divisions": (
        files(**{"train-0-of-1_csv": TWO, "train-1-of-2_csv": TWO}),
        "one of 1 shards",
    ),
    "a shard in two formats": (
        files(**SHARDS, **{"train-1_jsonl": A_AND_B}),
        "train-1.csv or train-1.jsonl",
    ),
    "a copy of a shard": (
        files(**SHARDS, **{"train-1 (1)_csv": TWO}),
        "train-1 (1).csv",
    ),
    "a shard under two names": (
        files(**SHARDS, train_1_csv=TWO),
        "train-1.csv or train_1.csv",
    ),
    "a text in UTF-16 without a mark": (
        files(train_jsonl=lines({"text": "h\0i\0", "labels": ["a"]})),
        "UTF-16",
    ),
    "two files of one number in LIBSVM": (
        files(train_svm="0 1:1\n1 1:2\n", train_libsvm="0 1:1\n"),
        "Move one away",
    ),
    "features from 0 and from 1": (
        files(train_svm="0 0:1 1:2\n1 0:3\n", test_svm="0 1:1 2:2\n"),
        "those of train.svm 0 to 1",
    ),
    "rows that LIBSVM counts and has not": (
        files(train_svm="3 2 2\n0 1:1\n1 2:2\n"),
        "says 3 rows, and there are 2",
    ),
    "values behind @data": (
        files(
            **{
                "m-train_arff": "@relation 'm: -C 1'\n@attribute y {0,1}\n"
                "@attribute x numeric\n@data 1,2\n0,3\n"
            }
        ),
        "after @data",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_content_that_would_be_lost_is_refused(case: str, tmp_path: Path) -> None:
    write, message = REFUSED[case]
    write(tmp_path / "d")
    only = tmp_path / "d" / "data.jsonl"
    with pytest.raises(UserError) as error:
        read(only if only.exists() else tmp_path / "d", empty_labels="none")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"train_csv": TWO, "test_csv": TWO}, {"Train_csv": TWO, "TEST_csv": TWO}),
        ({"train_csv": TWO, "test_csv": TWO}, {"train_csv": TWO, "Test_csv": TWO}),
        (
            {"train_svm": "0 1:1\n1 1:2\n", "test_svm": "1 1:3\n"},
            {"train_svm": "0 1:1\n1 1:2\n", "Test_SVM": "1 1:3\n"},
        ),
    ],
)
def test_names_of_files_may_be_in_upper_case(
    tmp_path: Path, first: dict[str, str], second: dict[str, str]
) -> None:
    files(**first)(tmp_path / "1" / "d")
    files(**second)(tmp_path / "2" / "d")
    assert read(tmp_path / "1/d").card.fingerprint == read(tmp_path / "2/d").card.fingerprint


def test_folders_of_parts_may_be_in_upper_case(tmp_path: Path) -> None:
    for part, names in (("train", "ab"), ("Test", "c")):
        for seed, name in enumerate(names):
            for label in ("cat", "dog")[seed:]:
                put(tmp_path / "d" / part / label / f"{name}.jpg", jpeg(ord(name)))
    assert read(tmp_path / "d").card.rows == {"train": 2, "test": 1}


def test_an_array_under_a_joined_name_is_not_left_out(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", X=X, y=X, Xtest=X, ytest=X)
    with pytest.raises(UserError, match="array Xtest is not read"):
        read(tmp_path / "d.npz")


def test_an_array_in_two_files_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "X_train.npy", X)
    np.save(tmp_path / "y_train.npy", X)
    np.savez(tmp_path / "more.npz", X_train=2 * X)
    with pytest.raises(UserError, match="another file of its folder has X_train"):
        read(tmp_path)


def test_arrays_may_have_endings_in_upper_case(tmp_path: Path) -> None:
    for name in ("X_train", "y_train", "X_test", "y_test"):
        np.save(tmp_path / "d.npy", X)
        (tmp_path / "d.npy").rename(tmp_path / f"{name}.{'NPY' if 'test' in name else 'npy'}")
    assert read(tmp_path).card.rows == {"train": 3, "test": 3}


@pytest.mark.parametrize("name", ["index", "level_0", "Unnamed: 0.1"])
def test_old_row_numbers_of_pandas_are_no_feature(tmp_path: Path, name: str) -> None:
    rows = "".join(f"{7 * k % 10},{k / 3},a\n" for k in range(10))
    put(tmp_path / "d/train.csv", f"{name},x,labels\n{rows}")
    with pytest.raises(UserError, match="counts the rows"):
        read(tmp_path / "d")


@pytest.mark.parametrize(
    ("names", "refused"),
    [(["yes", "no"], True), (["Positive", "Negative"], True), (["no", "yes"], False)],
)
def test_a_column_in_which_0_is_called_yes_is_refused(
    tmp_path: Path, names: list[str], refused: bool
) -> None:
    import datasets

    named = datasets.ClassLabel(names=names)
    kinds = datasets.Features({"text": datasets.Value("string"), "a": named, "b": named})
    rows = {"text": ["x", "y"], "a": [0, 1], "b": [1, 0]}
    (tmp_path / "d").mkdir()
    datasets.Dataset.from_dict(rows, features=kinds).to_parquet(tmp_path / "d/train.parquet")
    if refused:
        with pytest.raises(UserError, match="calls 0"):
            read(tmp_path / "d")
    else:
        assert read(tmp_path / "d").truth("train").tolist() == [[0, 1], [1, 0]]


def test_an_image_beside_its_table_and_one_in_the_data_folder_are_told_apart(
    tmp_path: Path,
) -> None:
    put(tmp_path / "d/train/a.jpg", jpeg(1))
    put(tmp_path / "d/train/metadata.csv", "file_name,labels\na.jpg,cat\n")
    put(tmp_path / "d/a.jpg", jpeg(2))
    with pytest.raises(UserError, match=r"'a.jpg' may be a.jpg and train/a.jpg"):
        read(tmp_path / "d")


@pytest.mark.parametrize("place", ["", "images", "train"])
def test_an_image_that_is_changed_is_read_again(tmp_path: Path, place: str) -> None:
    home = tmp_path / "d"
    table = home / ("train/metadata.csv" if place == "train" else "train.csv")
    put(home / place / "a.jpg", jpeg(1))
    put(table, "file_name,labels\na.jpg,cat\n")
    first = read(home).card.fingerprint
    assert read(home).card.fingerprint == first
    put(home / place / "a.jpg", jpeg(2))
    assert read(home).card.fingerprint != first


def test_a_whole_number_of_hundreds_of_digits_is_one_line(tmp_path: Path) -> None:
    put(tmp_path / "d/train.jsonl", f'{{"vector": [{"9" * 400}, 1], "labels": ["a"]}}\n')
    with pytest.raises(UserError, match="is not a number"):
        read(tmp_path / "d")
