"""Ids of labels that count something else than was read, and content that was left out with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import datasets
from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.data.adapter import BadRow, Row
from ssmlbench.data.user_data import data_class

IDS = "text,labels\nx,0\ny,1\nz,2\n"
ROWS = '{{"text": "x", "labels": [0, 1, 0]}}\n{{"text": "y", "labels": {}}}\n'
SPARSE = "1 0:.5 3:1\n2 0:1 5:2\n1 0:3\n"
ARFF = "@relation 'r: -C {}'\n@attribute a {{0,1}}\n@attribute b {{0,1}}\n@attribute f real\n@data\n1,0,2\n"


def read(home: Path) -> dict[str, list[list[str]]]:
    """The labels of the rows of each split."""
    own = data_class(DataAddress(str(home), DataOptions()))()
    names, found = own.label_names(), dict[str, list[list[str]]]()
    for split in own.splits():
        rows = [row for row in own.rows(split) if isinstance(row, Row)]
        found[split] = [[names[k] for k in row.labels or ()] for row in rows]
    return found


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"labels.txt": "a\n\nb\nc\n", "train.csv": IDS}, "labels.txt line 2: an empty line"),
        ({"labels.txt": "label_name\na\nb\nc\n", "train.csv": IDS}, "the first line is 'label_name'"),
        ({"labels.txt": "# mine\na\nb\nc\n", "train.csv": IDS}, "the first line is '# mine'"),
        ({"labels.txt": "1 a\n0 b\n2 c\n", "train.csv": IDS}, "line 0 is numbered 1"),
        ({"labels.txt": "1: a\n2: b\n3: c\n", "train.csv": IDS}, "line 0 is numbered 1"),
        ({"labels.txt": "1\ta\n2\tb\n", "train.svm": "0 1:1\n1 2:1\n"}, "line 0 is numbered 1"),
        ({"labels.txt": "1\n2\n3\n", "train.csv": IDS}, "others only count its lines"),
        (
            {
                "labels.txt": "1\n2\n",
                "train.csv": "text,labels\nx,1\ny,2\n",
                "test.csv": "text,labels\nz,0\n",
            },
            "others only count its lines",
        ),
        ({"labels.txt": "1 a\n0 b\n2 c\n", "train.jsonl": ROWS.format("[0, 0, 1]")}, "is numbered 1"),
        ({"labels.txt": "1\n2\n", "train.svm": "0 1:1\n1 2:1\n"}, "others only count its lines"),
        ({"labels.txt": "p\nq\n", "train.csv": "text,a,b\nx,1,0\ny,0,1\n"}, "labels.txt are p, q"),
        ({"train.csv": IDS, "unlabelled.txt": "one\ntwo\n"}, "unlabelled.txt has rows"),
        ({"train.svm": SPARSE, "test.txt": "1 0:1\n"}, "test.txt has rows that are not read"),
        ({"train.jsonl": ROWS.format("[2]")}, "and [2] are not as many"),
        ({"train.jsonl": ROWS.format("[0, 1]")}, "and [0, 1] are not as many"),
        ({"train.jsonl": ROWS.format("[]"), "test.jsonl": ROWS.format("[0, 0, 1, 1]")}, "not as many"),
        ({"train.jsonl": ROWS.format('["2"]')}, "and ['2'] are not as many"),
        ({"train.csv": "text,labels\nx,0;1;0\ny,2\n"}, "and 2 are not as many"),
        ({"train.csv": 'text,labels\nx,"Arts &amp; Crafts"\n'}, "does the ; of &amp; part labels?"),
        ({"train.csv": "text,a,b,\nx,1,0,1\ny,0,1,0\n"}, "column 4 has numbers and no name"),
        ({"train.csv": ",text,a\n1,x,1\n0,y,0\n1,z,1\n"}, "column 1 has numbers and no name"),
        ({"train.csv": ",f,labels\n.5,1,a\n.7,2,b\n"}, "column 1 has numbers and no name"),
        ({"train.svm": SPARSE, "test.svm": "1 1:.5 2:1\n2 3:1\n"}, "else count from 1 in both"),
        ({"train.svm": "1 1:.5 2:1\n2 3:1\n", "test.svm": SPARSE}, "else count from 1 in both"),
        ({"n-train.arff": ARFF.format(2), "n-test.arff": ARFF.format(1)}, "n-test.arff: its @relation"),
    ],
)  # fmt: skip
def test_what_may_count_something_else_is_refused(
    files: dict[str, str], message: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as raised:
        read(tmp_path)
    assert message in str(raised.value)


def test_a_list_of_zeros_and_ones_beside_names_is_a_bad_row(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("a\nb\nc\n")
    (tmp_path / "train.jsonl").write_text(
        '{"text": "w", "labels": ["a"]}\n' + ROWS.format("[0, 2]")
    )
    own = data_class(DataAddress(str(tmp_path), DataOptions()))()
    kinds = [type(row) for row in own.rows("train")]
    assert kinds == [Row, BadRow, Row]


def test_a_listed_name_with_a_mark_in_it_is_not_parted(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("Arts, crafts\nb\nArts\ncrafts\n")
    (tmp_path / "train.csv").write_text('text,labels\nx,"Arts, crafts"\ny,"Arts,b"\n')
    own = data_class(DataAddress(str(tmp_path), DataOptions()))()
    bad, good = own.rows("train")
    assert isinstance(bad, BadRow)
    assert "is 'Arts, crafts' one label or several?" in bad.reason
    assert isinstance(good, Row)
    assert good.labels == (2, 1)


@pytest.mark.parametrize(
    ("files", "labels"),
    [
        ({"labels.txt": "0 a\n1 b\n2 c\n", "train.csv": IDS}, [["0 a"], ["1 b"], ["2 c"]]),
        (
            {"labels.txt": "1 star\n2 stars\n", "train.csv": "text,labels\nx,2 stars\n"},
            [["2 stars"]],
        ),
        ({"labels.txt": "2\n1\n0\n", "train.csv": IDS}, [["0"], ["1"], ["2"]]),
        ({"train.jsonl": ROWS.format("[]") + ROWS.format("null")}, [["1"], [], ["1"], []]),
        ({"labels.txt": "2\n1\n0\n", "train.svm": "0 1:1\n2 2:1\n1 1:1\n"}, [["0"], ["2"], ["1"]]),
        ({"train.csv": "text,labels\nx,1.0;0.0;1.0\ny,0.0;0.0;1.0\n"}, [["0", "2"], ["2"]]),
        ({"train.csv": "text,labels\nx,True|False|True\ny,1|-1|0\n"}, [["0", "2"], ["0"]]),
        ({"train.jsonl": ROWS.format('["0", "0", "1"]')}, [["1"], ["2"]]),
        ({"train.csv": ",text,a,b\n0,x,1,0\n1,y,0,1\n2,z,1,1\n"}, [["a"], ["b"], ["a", "b"]]),
        ({"train.csv": "text,a,b,\nx,1,0,\ny,0,1,\n"}, [["a"], ["b"]]),
        (
            {"train.svm": "1 0:1 9:1\n" + 9 * "2 3:1\n", "test.svm": "1 7:1\n"},
            [["1"], *9 * [["2"]]],
        ),
    ],
)
def test_what_is_clear_is_read(
    files: dict[str, str], labels: list[list[str]], tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert read(tmp_path)["train"] == labels


def saved(names: list[str], **columns: list[Any]) -> datasets.Dataset:
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=names)}
    )
    return datasets.Dataset.from_dict(columns, features=features)


@pytest.mark.parametrize("form", ["saved", "parquet"])
def test_ids_of_a_class_label_count_its_names_even_if_these_are_numbers(
    form: str, tmp_path: Path
) -> None:
    """The library sorts names as texts: 0, 1, 10, 2."""
    made = saved(["1", "2", "0", "10"], text=list("wxyz"), label=[0, 1, 2, 3])
    if form == "saved":
        made.save_to_disk(tmp_path / "d")
    else:
        made.to_parquet(tmp_path / "train.parquet")
    found = read(tmp_path / "d" if form == "saved" else tmp_path)
    assert found["train"] == [["1"], ["2"], ["0"], ["10"]]


def test_names_of_the_numbers_in_a_column_are_compared_between_files(tmp_path: Path) -> None:
    saved(["a", "b"], text=["x"], label=[0]).to_parquet(tmp_path / "test.parquet")
    (tmp_path / "train.csv").write_text("text,label\nx,0\ny,1\n")
    with pytest.raises(UserError, match="names the ids of column 'label'"):
        read(tmp_path)
    (tmp_path / "labels.txt").write_text("a\nb\n")
    assert read(tmp_path) == {"train": [["a"], ["b"]], "test": [["a"]]}
    for part, names in (("train", ["clean", "bad"]), ("test", ["bad", "clean"])):
        rows = saved(names, text=["x", "y"], label=[0, 1]).rename_column("label", "a")
        rows.to_parquet(tmp_path / f"{part}.parquet")
    for name in ("train.csv", "labels.txt"):
        (tmp_path / name).unlink()
    with pytest.raises(UserError, match="0 in column 'a' is bad, in train"):
        read(tmp_path)


@pytest.mark.parametrize("change", ["one less", "one twice", "a split less"])
def test_files_that_a_saved_data_set_does_not_list_are_not_left_out(
    change: str, tmp_path: Path
) -> None:
    rows = saved(["a", "b"], text=list("xyz"), label=[0, 1, 0])
    both = datasets.DatasetDict(train=rows, test=rows)
    both.save_to_disk(tmp_path, num_shards={"train": 3, "test": 1})
    state, splits = tmp_path / "train/state.json", tmp_path / "dataset_dict.json"
    listed = json.loads(state.read_text())
    files = listed["_data_files"]
    listed["_data_files"] = {"one less": files[:2], "one twice": [*files, files[0]]}.get(
        change, files
    )
    state.write_text(json.dumps(listed))
    if change == "a split less":
        splits.write_text('{"splits": ["train"]}')
    with pytest.raises(UserError, match=r"it lists|it does not list"):
        read(tmp_path)


@pytest.mark.parametrize("place", [7, -1])
def test_a_sparse_matrix_with_places_outside_of_it_is_refused(place: int, tmp_path: Path) -> None:
    """SciPy wrote the value into another row, or beyond the memory of the matrix."""
    matrix = sparse.csr_matrix(np.arange(1.0, 13).reshape(4, 3))
    indices = matrix.indices.copy()
    indices[0] = place
    np.savez(
        tmp_path / "X_train.npz", format=b"csr", shape=matrix.shape, data=matrix.data,
        indices=indices, indptr=matrix.indptr,
    )  # fmt: skip
    np.save(tmp_path / "y_train.npy", np.eye(4, 2))
    with pytest.raises(UserError, match="X_train"):
        read(tmp_path)


@pytest.mark.parametrize(
    "test", [np.array([1, 2]), np.random.default_rng(0).random((2, 3))], ids=["numbers", "fractions"]
)  # fmt: skip
def test_arrays_of_another_type_than_those_of_training_rows_are_refused(
    test: Any, tmp_path: Path
) -> None:
    train = np.array(list("abcd")) if test.ndim == 1 else np.full((4, 3), 200, dtype=np.uint8)
    arrays = {"X_train": train, "y_train": np.eye(4, 2), "X_test": test, "y_test": np.eye(2)}
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(UserError, match="that of train"):
        read(tmp_path / "d.npz")
