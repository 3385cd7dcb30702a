"""A user's own tables and ARFF files are data sets without a line of Python."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.data import prepare
from ssmlbench.data.user_data import data_class
from ssmlbench.plugins.loader import Plugins
from tests.datasets.test_datasets import names_of
from tests.support.raw_layouts import jpeg, put

ROWS = {
    "train": [
        ("a text, with commas\nand lines", ["sport", "art"]),
        ("second", []),
        ("3rd", ["art"]),
    ],
    "test": [("fourth", ["law"])],
}


pytestmark = pytest.mark.usefixtures("empty_cache")


def told(path: Path, **options: Any) -> DataAddress:
    """The address of own data with what the command line says about it."""
    return DataAddress(str(path), DataOptions(**options))


def csv_text(header: list[str], rows: list[list[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    return text.getvalue()


def write_csv_names(folder: Path) -> None:
    for split, rows in ROWS.items():
        lines = [[f"{split}{n}", text, ";".join(names)] for n, (text, names) in enumerate(rows)]
        put(folder / f"{split}.csv", csv_text(["id", "text", "labels"], lines))


def write_csv_json_lists(folder: Path) -> None:
    for split, rows in ROWS.items():
        lines = [[text, json.dumps(names)] for text, names in rows]
        put(folder / f"{split}.csv", "\ufeff" + csv_text(["text", "labels"], lines))


def write_csv_columns(folder: Path) -> None:
    for split, rows in ROWS.items():
        lines = [
            [text, *(int(name in names) for name in ("art", "law", "sport")), "2020"]
            for text, names in rows
        ]
        put(folder / f"{split}.csv", csv_text(["text", "art", "law", "sport", "year"], lines))


def write_jsonl_names(folder: Path) -> None:
    for split, rows in ROWS.items():
        lines = [json.dumps({"text": text, "labels": names}) for text, names in rows]
        put(folder / f"{split}.jsonl", "\n".join(lines) + "\n\n")


def write_jsonl_ids(folder: Path) -> None:
    put(folder / "labels.txt", "art\nlaw\nsport\n")
    for split, rows in ROWS.items():
        ids = [[("art", "law", "sport").index(name) for name in names] for _, names in rows]
        lines = [json.dumps({"text": r[0], "labels": i}) for r, i in zip(rows, ids, strict=True)]
        put(folder / f"{split}.jsonl", "\n".join(lines))


def write_parquet_names(folder: Path) -> None:
    import pandas as pd

    folder.mkdir(parents=True)
    for split, rows in ROWS.items():
        frame = pd.DataFrame(
            {"text": [text for text, _ in rows], "labels": [names for _, names in rows]}
        )
        for shard in range(len(frame)):
            frame[shard : shard + 1].to_parquet(
                folder / f"{split}-{shard:05d}-of-{len(frame)}.parquet"
            )


def write_parquet_columns(folder: Path) -> None:
    import pandas as pd

    folder.mkdir(parents=True)
    for split, rows in ROWS.items():
        frame = pd.DataFrame({"text": [text for text, _ in rows]})
        for name in ("art", "law", "sport"):
            frame[name] = [name in names for _, names in rows]
        frame.to_parquet(folder / f"{split}.parquet")


FORMATS: dict[str, Callable[[Path], None]] = {
    "csv, joined names": write_csv_names,
    "csv, JSON lists": write_csv_json_lists,
    "csv, 0/1 columns": write_csv_columns,
    "jsonl, names": write_jsonl_names,
    "jsonl, ids": write_jsonl_ids,
    "parquet shards, names": write_parquet_names,
    "parquet, 0/1 columns": write_parquet_columns,
}


@pytest.mark.parametrize("form", FORMATS)
def test_every_form_gives_the_same_data_set(form: str, tmp_path: Path) -> None:
    FORMATS[form](tmp_path / "mine")
    task = prepare(data_class(told(tmp_path / "mine", empty_labels="none"))())
    assert task.card.name == "mine"
    assert task.card.label_names == ["art", "law", "sport"]
    for split, rows in ROWS.items():
        assert names_of(task, split) == [sorted(names) for _, names in rows]
        assert [task.inputs(split)[n] for n in range(len(rows))] == [text for text, _ in rows]
    write_jsonl_names(tmp_path / "other" / "mine")
    assert task.card.fingerprint == prepare(data_class(tmp_path / "other/mine")()).card.fingerprint


def test_ids_without_names_are_labels_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    put(tmp_path / "x/train.csv", csv_text(["text", "labels"], [["a", "10;9"], ["b", "[2]"]]))
    put(tmp_path / "x/test.csv", csv_text(["text", "labels"], [["c", "9"]]))
    card = prepare(data_class(tmp_path / "x")()).card
    assert card.label_names == ["2", "9", "10"]


def image_rows(form: str, folder: Path) -> None:
    for n in range(3):
        put(folder / "pictures" / f"{n}.jpg", jpeg(n))
    rows = {"train": [(0, "a"), (1, "b")], "test": [(2, "a")]}
    for split, listed in rows.items():
        if form == "csv":
            lines = [[f"pictures/{n}.jpg", label] for n, label in listed]
            put(folder / f"{split}.csv", csv_text(["image", "labels"], lines))
        else:
            import pandas as pd

            inside = [{"bytes": jpeg(n), "path": f"{n}.jpg"} for n, _ in listed]
            frame = pd.DataFrame({"image": inside, "labels": [[label] for _, label in listed]})
            frame.to_parquet(folder / f"{split}.parquet")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_images_come_from_paths_or_from_inside_parquet(form: str, tmp_path: Path) -> None:
    image_rows(form, tmp_path / form / "pics")
    cls = data_class(tmp_path / form / "pics")
    assert (cls.kind, cls.backbone) == ("image", "resnet50")
    task = prepare(cls())
    assert np.asarray(task.inputs("train")[0]).shape == (16, 24, 3)
    assert names_of(task, "train") == [["a"], ["b"]]


BAD: dict[str, tuple[str, str, str]] = {
    "csv with a cell too many": (
        "train.csv",
        'text,labels\n"two\nlines",a\nb,a,c\n',
        "train.csv line 4: 3 columns, expected 2",
    ),
    "not JSON": (
        "train.jsonl",
        '{"text": "x", "labels": ["a"]}\n{"text": ...\n',
        "train.jsonl line 2: not JSON",
    ),
    "a label that is no name": (
        "train.jsonl",
        '{"text": "x", "labels": ["a"]}\n{"text": "y", "labels": 3.5}\n',
        "train.jsonl line 2: labels '3.5' are not a list of names or ids",
    ),
    "labels of another kind": (
        "train.jsonl",
        '{"text": "x", "labels": ["a"]}\n{"text": "y", "labels": {"a": 1}}\n',
        "train.jsonl line 2: labels",
    ),
    "no text": (
        "train.jsonl",
        '{"text": "x", "labels": ["a"]}\n{"labels": ["a"]}\n',
        "train.jsonl line 2: no text in it",
    ),
    "neither 0 nor 1": ("train.csv", "text,a\nx,1\ny,2\n", "line 3: column a: expected 0 or 1"),
    "an id twice": (
        "train.csv",
        "id,text,labels\n1,x,a\n1,y,a\n",
        "train.csv line 3: id '1' occurs twice",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_with_a_table_is_told_with_its_line(case: str, tmp_path: Path) -> None:
    file, content, message = BAD[case]
    put(tmp_path / "t" / file, content)
    labels = '"a": 1' if case == "neither 0 nor 1" else '"labels": ["a"]'
    put(tmp_path / "t" / "test.jsonl", f'{{"id": "t", "text": "x", {labels}}}\n')
    adapter = data_class(tmp_path / "t")()
    with pytest.raises(UserError) as error:
        prepare(adapter)
    assert message in str(error.value)
    card = prepare(adapter, skip_bad=True).card
    assert (card.rows["train"], sum(card.skipped.values())) == (1, 1)


def test_a_label_that_labels_txt_does_not_list_is_unknown(tmp_path: Path) -> None:
    write_jsonl_names(tmp_path)
    put(tmp_path / "labels.txt", "art\nsport\n")
    with pytest.raises(UserError, match=r"test.jsonl line 1: unknown label 'law'"):
        prepare(data_class(tmp_path)())


def test_an_edited_table_is_another_data_set(tmp_path: Path) -> None:
    write_jsonl_names(tmp_path / "d")
    first = prepare(data_class(tmp_path / "d")()).card
    with (tmp_path / "d" / "train.jsonl").open("a") as file:
        file.write('{"text": "new", "labels": ["art"]}\n')
    assert prepare(data_class(tmp_path / "d")()).card.rows["train"] == first.rows["train"] + 1


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"test.csv": "text,labels\nx,a\n"}, "no train file"),
        ({"train.csv": "words,labels\nx,a\n", "test.csv": ""}, "no text or image column"),
        ({"train.csv": "", "test.csv": ""}, "no readable first row"),
        ({"train.csv": "f,is a,b\n0.5,1,0\n"}, "are the labels, type --label-column 'is a,b'$"),
        ({"train.csv": "f,g\n0.5,2\n"}, "and --label-column$"),
    ],
)
def test_a_folder_that_cannot_be_used_says_what_is_missing(
    files: dict[str, str], message: str, tmp_path: Path
) -> None:
    for name, content in files.items():
        put(tmp_path / name, content)
    with pytest.raises(UserError, match=message):
        data_class(tmp_path)


def test_a_path_is_a_plugin_that_a_worker_can_load_again(tmp_path: Path) -> None:
    write_jsonl_names(tmp_path / "my data")
    plugins = Plugins()
    name = plugins.data_set(str(tmp_path / "my data"))
    assert name == "my-data"
    assert plugins.data_set(str(tmp_path / "my data")) == name
    assert plugins.data_set("multidigits") == "multidigits"
    again = Plugins(plugins.files)
    assert prepare(again.datasets[name]()).card.rows == {"train": 3, "test": 1}


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    write_jsonl_names(tmp_path / "aapd")
    with pytest.raises(UserError, match="another data set called 'aapd'"):
        Plugins([tmp_path / "aapd"])
