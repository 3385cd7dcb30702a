"""Which rows and entries of own data are unlabelled, and where its test rows come from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from ssmlbench.cli import app
from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.data import Task, prepare
from ssmlbench.data.user_data import data_class
from ssmlbench.plugins.loader import Plugins
from tests.support.raw_layouts import put

pytestmark = pytest.mark.usefixtures("empty_cache")


def read(path: Path, **options: Any) -> Task:
    return prepare(data_class(DataAddress(str(path), DataOptions(**options)))())


LISTS = [["a", "b"], [], None, ["b"]]
TRUTH = [[1, 1], [0, 0], [-1, -1], [0, 1]]


def lists_frame() -> pd.DataFrame:
    return pd.DataFrame({"text": list("wxyz"), "labels": LISTS})


def jsonl_null(folder: Path) -> None:
    put(folder / "train.jsonl", lists_frame().to_json(orient="records", lines=True))


def parquet_null(folder: Path) -> None:
    folder.mkdir()
    lists_frame().to_parquet(folder / "train.parquet")


def csv_flags(folder: Path) -> None:
    flags = pd.DataFrame(TRUTH, columns=["a", "b"]).replace(-1, np.nan)
    put(folder / "train.csv", flags.assign(text=list("wxyz")).to_csv(index=False))


def csv_minus_one(folder: Path) -> None:
    flags = pd.DataFrame(TRUTH, columns=["a", "b"]).astype(float)
    put(folder / "train.csv", flags.assign(text=list("wxyz")).to_csv(index=False))


def parquet_nan(folder: Path) -> None:
    folder.mkdir()
    flags = pd.DataFrame(TRUTH, columns=["a", "b"]).replace(-1, np.nan)
    flags.assign(text=list("wxyz")).to_parquet(folder / "train.parquet")


@pytest.mark.parametrize("write", [jsonl_null, parquet_null, csv_flags, csv_minus_one, parquet_nan])
def test_a_missing_list_is_unknown_and_an_empty_one_is_not(
    write: Callable[[Path], None], tmp_path: Path
) -> None:
    write(tmp_path / "d")
    task = read(tmp_path / "d")
    assert task.card.label_names == ["a", "b"]
    assert task.truth("train").tolist() == TRUTH
    assert (task.card.labelled, task.card.unlabelled) == ({"train": 3}, {"train": 1})
    assert task.splits == ("train",)


@pytest.mark.parametrize(
    "content",
    [
        ("train.csv", "text,labels\nw,a;b\nx,\n"),
        ("train.csv", "text,labels\nw,\"['a', 'b']\"\nx,  \n"),
        ("train.jsonl", '{"text": "w", "labels": "a|b"}\n{"text": "x", "labels": ""}\n'),
        ("train.jsonl", '{"text": "w", "labels": ["a", "b"]}\n{"text": "x"}\n'),
        ("train.csv", "text,labels\nw,a;b\nx,NaN\n"),
        ("train.csv", "text,labels\nw,1;2\nx,-1\n"),
        ("train.csv", "text,labels\nw,1;2\nx,-1.0\n"),
        ("train.jsonl", '{"text": "w", "labels": [1, 2]}\n{"text": "x", "labels": [-1]}\n'),
        ("train.jsonl", '{"text": "w", "labels": [1, 2]}\n{"text": "x", "labels": -1}\n'),
    ],
)
def test_where_a_format_cannot_tell_prepare_asks(content: tuple[str, str], tmp_path: Path) -> None:
    put(tmp_path / "d" / content[0], content[1])
    with pytest.raises(UserError, match=r"train\.\w+ line \d: .*--empty-labels none or --empty"):
        read(tmp_path / "d")
    assert read(tmp_path / "d", empty_labels="none").truth("train").tolist() == [[1, 1], [0, 0]]
    assert read(tmp_path / "d", empty_labels="unknown").truth("train").tolist() == [
        [1, 1],
        [-1, -1],
    ]


def test_a_column_of_which_no_label_can_be_read_says_why(tmp_path: Path) -> None:
    put(tmp_path / "d/train.jsonl", '{"text": "w", "labels": [["a"]]}\n')
    with pytest.raises(
        UserError, match=r"holds no label \(train.jsonl line 1: labels .* not a list"
    ):
        read(tmp_path / "d")


def test_ids_that_pandas_writes_as_floats_are_those_of_another_file(tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": list("abc"), "label": [0, None, 2]})  # a gap makes them floats
    put(tmp_path / "d/train.csv", frame.to_csv(index=False))
    put(tmp_path / "d/test.csv", "text,label\nd,0\ne,2\n")
    task = read(tmp_path / "d", empty_labels="unknown")
    assert task.card.label_names == ["0", "2"]
    assert task.truth("train").tolist() == [[1, 0], [-1, -1], [0, 1]]


def test_single_entries_may_be_unknown(tmp_path: Path) -> None:
    put(tmp_path / "d/train.csv", "text,a,b,c\nx,,1,0\ny,-1,nan,1\nz,1,0,0\n")
    task = read(tmp_path / "d")
    assert task.truth("train").tolist() == [[-1, 1, 0], [-1, -1, 1], [1, 0, 0]]
    assert task.card.partly_labelled == {"train": 2}
    header = "@relation t\n@attribute x numeric\n@attribute a {0,1}\n@attribute b numeric\n@data\n"
    put(tmp_path / "t.xml", '<labels><label name="a"/><label name="b"/></labels>')
    put(tmp_path / "t.arff", header + "1,?,1\n2,0,-1\n{0 3,1 ?}\n")
    assert read(tmp_path / "t.arff").truth("train").tolist() == [[-1, 1], [0, -1], [-1, 0]]


def test_minus_one_and_one_without_zero_is_not_guessed(tmp_path: Path) -> None:
    put(tmp_path / "t.xml", '<labels><label name="a"/></labels>')
    put(tmp_path / "t.arff", "@relation t\n@attribute x real\n@attribute a {-1,1}\n@data\n1,-1\n")
    with pytest.raises(UserError, match="write 0 for a negative label"):
        read(tmp_path / "t.arff")


@pytest.mark.parametrize("name", ["unlabelled", "unlabeled"])
def test_rows_of_an_unlabelled_file_are_training_rows_without_labels(
    name: str, tmp_path: Path
) -> None:
    put(tmp_path / "d/train.csv", "text,a,b\nx,1,0\n")
    put(tmp_path / "d/test.csv", "text,a,b\ny,1,1\n")
    put(tmp_path / "d" / f"{name}.jsonl", '{"text": "u", "extra": 1}\n{"text": "v", "a": 1}\n')
    task = read(tmp_path / "d")
    assert task.card.rows == {"train": 3, "test": 1}
    assert task.truth("train").tolist() == [[1, 0], [-1, -1], [-1, -1]]
    assert task.ids("train") == ["train.csv line 2", f"{name}.jsonl line 1", f"{name}.jsonl line 2"]


def test_a_split_column_tells_the_rows_of_one_file_apart(tmp_path: Path) -> None:
    rows = ["x,a,train", "y,b,test", "z,a,Train", "u,,unlabelled", "v,a,validation"]
    put(tmp_path / "all.csv", "\n".join(["text,labels,split", *rows]) + "\n")
    task = read(tmp_path / "all.csv", empty_labels="unknown")
    assert (task.card.name, task.card.rows) == ("all", {"train": 3, "test": 1})
    assert list(task.inputs("train")[:]) == ["x", "z", "u"]
    put(tmp_path / "all.csv", "text,labels,part\nx,a,train\ny,b,tset\nz,a,test\n")
    with pytest.raises(UserError, match="line 3: column part: 'tset' is not train or test"):
        read(tmp_path / "all.csv", split_column="part")


def test_held_out_rows_are_seeded_and_fully_labelled(tmp_path: Path) -> None:
    rows = [{"text": f"t{n}", "labels": None if n % 3 == 0 else ["a"]} for n in range(30)]
    put(tmp_path / "all.jsonl", "\n".join(map(json.dumps, rows)))
    drawn = []
    for seed in (0, 0, 1):
        task = read(tmp_path / "all.jsonl", holdout=0.25, holdout_seed=seed)
        assert task.card.rows == {"train": 25, "test": 5}  # a quarter of the 20 labelled rows
        assert (task.truth("test") == 1).all()
        texts = {split: list(task.inputs(split)[:]) for split in ("train", "test")}
        assert sorted(texts["train"] + texts["test"]) == sorted(row["text"] for row in rows)
        drawn.append(texts["test"])
    assert drawn[0] == drawn[1] != drawn[2]
    with pytest.raises(UserError, match="neither part may be empty"):
        read(tmp_path / "all.jsonl", holdout=0.01)


def test_test_rows_and_held_out_rows_exclude_each_other(tmp_path: Path) -> None:
    for split in ("train", "test"):
        put(tmp_path / f"d/{split}.csv", "text,a,b\nx,1,0\n")
    with pytest.raises(UserError, match="--holdout is for data without test rows"):
        read(tmp_path / "d", holdout=0.5)


LABEL_TEXTS = {
    "['it''s', 'b']": None,
    "['a', 'b']": ["a", "b"],
    "['a' 'b']": ["a", "b"],
    "['a' 'b'\n 'c']": ["a", "b", "c"],
    '["a, b", "it\'s"]': ["a, b", "it's"],
    "[\"it's\", 'b']": ["b", "it's"],
    "[1 2]": ["1", "2"],
    "['a', ": None,
    "[a]": None,
    "[__import__('os')]": None,
    "[]": [],
    "('a', 'b')": ["a", "b"],
    "('a',)": ["a"],
    "()": [],
    "(1, 2)": ["1", "2"],
    "{'b', 'a'}": ["a", "b"],
    "set()": [],
    "frozenset({'a'})": ["a"],
    "[np.str_('a'), np.str_('b')]": ["a", "b"],
    "[np.int64(3), np.int64(4)]": ["3", "4"],
    "[1.0, 2.0]": ["1", "2"],
    "(other)": ["(other)"],
    "(a) first;{b} second": ["(a) first", "{b} second"],
    "7.0": ["7"],
    "('a'": None,
    "{'a': 1, 'b': 0}": None,
    '{"a": 1, "b": 0}': None,
    "array(['a'], dtype=object)": None,
    "[[1, 2], [3]]": None,
    "[1.5]": None,
    "[3, -1]": None,
    "[np.str_('a']": None,
}


@pytest.mark.parametrize("text", LABEL_TEXTS)
def test_lists_as_python_and_numpy_print_them(text: str, tmp_path: Path) -> None:
    """What pandas writes into a CSV file when a column holds lists or arrays."""
    frame = pd.DataFrame({"text": ["x", "y"], "labels": [text, '["z"]']})
    put(tmp_path / "d/train.csv", frame.to_csv(index=False))
    expected = LABEL_TEXTS[text]
    if text == "['it''s', 'b']":  # Python joins the two; so does nobody who writes labels
        expected = ["b", "it", "s"]
    if expected is None:
        with pytest.raises(UserError, match="line 2: labels"):
            read(tmp_path / "d")
        return
    task = read(tmp_path / "d")
    row = task.truth("train")[0]
    assert [name for k, name in enumerate(task.card.label_names) if row[k]] == expected


def test_labels_are_joined_by_the_separator_that_is_named(tmp_path: Path) -> None:
    put(tmp_path / "d/train.csv", 'body,tags\nx,"art, design / law"\ny,law\n')
    task = read(tmp_path / "d", text_column="body", label_column="tags", label_separator=" / ")
    assert task.card.label_names == ["art, design", "law"]


def test_the_options_travel_with_the_data_set_to_other_processes(tmp_path: Path) -> None:
    put(tmp_path / "d/train.csv", "body,labels\nx,a\ny,\n" + "z,b\n" * 8)
    plugins = Plugins((), DataOptions(text_column="body", empty_labels="unknown", holdout=0.5))
    name = plugins.data_set(str(tmp_path / "d"))
    again = Plugins(plugins.files).datasets[name]()
    first = prepare(plugins.datasets[name]()).card
    assert prepare(again).card == first
    assert first.unlabelled == {"train": 1, "test": 0}


def test_the_command_line_asks_and_is_told(tmp_path: Path) -> None:
    put(tmp_path / "d/train.csv", "text,labels\nx,a\ny,\nz,b\n")
    prepare_it = ["data", "prepare", str(tmp_path / "d")]
    asked = CliRunner().invoke(app, prepare_it)
    assert isinstance(asked.exception, UserError)
    assert "--empty-labels none or --empty-labels unknown" in str(asked.exception)
    told = CliRunner().invoke(app, [*prepare_it, "--empty-labels", "unknown"])
    assert told.exit_code == 0, told.output
    assert "2 labelled, 0 partly labelled, 1 unlabelled" in told.stdout
    assert "no test rows" in told.stdout
    typed = ["run", "--method", "bce", "--dataset", str(tmp_path / "d"), "--pi", "0.5"]
    refused = CliRunner().invoke(app, [*typed, "--empty-labels", "unknown", "--dry-run"])
    assert isinstance(refused.exception, UserError)
    assert "--regime given" in str(refused.exception)


def test_recommend_takes_the_options_that_it_is_told_to_type(tmp_path: Path) -> None:
    put(tmp_path / "d/train.csv", "text,labels\nx,a\ny,\nz,b\n")
    typed = ["recommend", "--dataset", str(tmp_path / "d"), "--results", str(tmp_path / "r")]
    asked = CliRunner().invoke(app, typed)
    assert "--empty-labels none or --empty-labels unknown" in str(asked.exception)
    told = CliRunner().invoke(app, [*typed, "--empty-labels", "wrong"])
    assert "--empty-labels wrong: no such choice" in str(told.exception)
