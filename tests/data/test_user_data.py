"""A user's own tables and ARFF files are data sets without a line of Python."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.data import Task, prepare
from ssmlbench.data.user_data import data_class
from ssmlbench.inputs.encoders import Encoder, EncoderOptions
from ssmlbench.inputs.loader import SplitLoader
from ssmlbench.inputs.prepared import prepared_inputs
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.train import encoder_class
from tests.datasets.test_datasets import names_of
from tests.support.raw_layouts import jpeg, put
from tests.support.tiny_models import save_tiny_bert

ROWS = {
    "train": [
        ("a text, with commas\nand lines", ["sport", "art"]),
        ("second", []),
        ("3rd", ["art"]),
    ],
    "test": [("fourth", ["law"])],
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))


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
            frame[shard : shard + 1].to_parquet(folder / f"{split}-{shard:05d}-of-3.parquet")


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


# Mulan's ARFF -------------------------------------------------------------------------------------

XML = """<?xml version="1.0" encoding="utf-8"?>
<labels xmlns="http://mulan.sourceforge.net/labels">
<label name="big"><label name="it's odd"></label></label>
</labels>
"""
HEADER = """% a comment
@relation 'toy: a set'

@attribute 'it\\'s odd' {0,1}
@ATTRIBUTE height numeric
@attribute colour {red, 'light blue'}
@attribute big {0,1}
@attribute word {0,1}

@data
"""
DENSE = ["0,1.5,red,1,1", "1, -2e1 ,'light blue',1,0"]
SPARSE = ["{1 1.5,3 1,4 1}", "{0 1, 1 -2e1, 2 'light blue', 3 1}"]


def write_arff(folder: Path, train: list[str], test: list[str]) -> Path:
    put(folder / "toy-train.arff", HEADER + "\n".join(train) + "\n")
    put(folder / "toy-test.arff", HEADER + "\n".join(test) + "\n")
    put(folder / "toy.xml", XML)
    return folder / "toy.arff"


@pytest.mark.parametrize("rows", [DENSE, SPARSE])
def test_dense_and_sparse_arff_give_the_same_vectors(rows: list[str], tmp_path: Path) -> None:
    task = prepare(data_class(write_arff(tmp_path, rows, rows[:1]))())
    assert (task.card.name, task.card.kind) == ("toy", "vector")
    assert task.card.label_names == ["big", "it's odd"]
    assert names_of(task, "train") == [["big"], ["big", "it's odd"]]
    # height; red and light blue by their positions; word
    assert np.stack(task.inputs("train")[:]).tolist() == [[1.5, 0, 1], [-20, 1, 0]]
    other = prepare(data_class(write_arff(tmp_path / "b", DENSE, DENSE[:1]))())
    assert task.card.fingerprint == other.card.fingerprint


def test_a_quoted_comma_is_part_of_its_value_and_a_tab_may_follow_a_sparse_index(
    tmp_path: Path,
) -> None:
    header = (
        "@attribute 'it\\'s odd' {0,1}\n@attribute height numeric\n"
        "@attribute kind {plain,'red, or blue',\"a 'b', c\",'it\\'s, both'}\n"
        "@attribute big {0,1}\n@data\n"
    )
    dense = [
        "0,1.5,'red, or blue',1",
        "1,'2' , \"a 'b', c\" ,0",
        "0,3,'it\\'s, both',1",
        "0,4,plain,1",
    ]
    sparse = [
        "{1 1.5,2 'red, or blue',3 1}",
        "{0\t1, 1\t 2, 2\t\"a 'b', c\"}",
        "{1\t3,2 'it\\'s, both',3\t1}",
        "{1\t4,3 1}",
    ]
    expected = [[1.5, 1], [2, 2], [3, 3], [4, 0]]
    for name, rows in (("dense", dense), ("sparse", sparse)):
        for split in ("train", "test"):
            put(tmp_path / name / f"toy-{split}.arff", header + "\n".join(rows))
        put(tmp_path / name / "toy.xml", XML)
        task = prepare(data_class(tmp_path / name / "toy.arff")())
        assert np.stack(task.inputs("train")[:]).tolist() == expected
        assert names_of(task, "train") == [["big"], ["it's odd"], ["big"], ["big"]]


def test_any_file_of_the_pair_names_the_data_set(tmp_path: Path) -> None:
    write_arff(tmp_path, DENSE, DENSE)
    assert data_class(tmp_path / "toy-train.arff").name == "toy"
    (tmp_path / "toy.xml").unlink()
    with pytest.raises(UserError, match=r"toy\.xml is not in the same folder"):
        data_class(tmp_path / "toy.arff")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0,1.5,red,1", "4 values, expected 5"),
        ("0,tall,red,1,1", "attribute 'height': 'tall' is not a value"),
        ("0,?,red,1,1", "attribute 'height': a missing value"),
        ("0,1,green,1,1", "attribute 'colour': 'green' is not a value"),
        ("0,nan,red,1,1", "not a finite number"),
        ("{9 1}", "'9' is not the number of an attribute"),
        ("{1 2", "no closing }"),
        ("{1}", "attribute 'height': '' is not a value"),
        ("0,1.5,'light blue,1,1", "attribute 'colour'"),
    ],
)
def test_a_bad_arff_row_is_told_with_its_line(line: str, message: str, tmp_path: Path) -> None:
    adapter = data_class(write_arff(tmp_path, [DENSE[0], line], DENSE))()
    with pytest.raises(UserError) as error:
        prepare(adapter)
    assert f"toy-train.arff line 12: {message}" in str(error.value) or message in str(error.value)
    assert "toy-train.arff line 12" in str(error.value)
    assert prepare(adapter, skip_bad=True).card.rows["train"] == 1


def test_a_label_of_the_xml_must_be_an_attribute(tmp_path: Path) -> None:
    file = write_arff(tmp_path, DENSE, DENSE)
    put(tmp_path / "toy.xml", XML.replace("big", "huge"))
    with pytest.raises(UserError, match="no attribute 'huge'"):
        prepare(data_class(file)())


def test_the_command_line_takes_a_path(tmp_path: Path, ssmlbench: Callable[..., Any]) -> None:
    file = write_arff(tmp_path / "in", DENSE, DENSE)
    done = ssmlbench("data", "prepare", file)
    assert done.returncode == 0, done.stderr
    assert "2 train, 2 test" in done.stdout
    assert "nothing published" in ssmlbench("data", "verify", file).stdout
    nowhere = ssmlbench("data", "prepare", "./nowhere")
    assert nowhere.returncode == 2
    assert "no such folder" in nowhere.stderr


def test_a_vector_task_hands_out_float_arrays(tmp_path: Path) -> None:
    task: Task = prepare(data_class(write_arff(tmp_path, DENSE, DENSE))())
    assert np.asarray(task.inputs("test")[0]).dtype == np.float32


def write_translated(folder: Path, column: str = "back_translation") -> Task:
    rows = [["a", "x", "b"], ["c", "y", ""]] * 40
    put(folder / "train.csv", csv_text(["text", "labels", column], rows))
    put(folder / "test.csv", csv_text(["text", "labels", column], [["d", "x", ""]]))
    return prepare(data_class(folder)())


class Letters(Encoder):
    """A letter as its number; its strong view is the text itself."""

    name = "letters"
    kinds = {"text"}

    @classmethod
    def prepare(cls, raws: Sequence[Any], options: EncoderOptions) -> torch.Tensor:
        return torch.tensor([[float(ord(text))] for text in raws])


def test_a_strong_view_is_the_text_or_its_back_translation(tmp_path: Path) -> None:
    task = write_translated(tmp_path / "mine")
    train = prepared_inputs(Letters, EncoderOptions(), task, "train")
    rows, generator = np.arange(80), torch.Generator().manual_seed(0)
    for view in ("plain", "weak"):
        seen = train.view(rows, view, generator)
        assert [chr(int(v)) for v in seen[:, 0]] == ["a", "c"] * 40
    strong = train.view(rows, "strong", generator)
    letters = [chr(int(row[0])) for row in strong]
    assert set(letters[::2]) == {"a", "b"}
    assert 8 <= letters[::2].count("b") <= 32  # 20 of 40 expected, deviation 3.2
    assert set(letters[1::2]) == {"c"}  # a text without one stands for itself
    assert task.back_translations("test") is None


def test_back_translations_are_part_of_the_data_and_never_a_label(tmp_path: Path) -> None:
    translated = write_translated(tmp_path / "mine").card
    plain = write_translated(tmp_path / "mine" / "mine", "comment").card
    assert translated.label_names == plain.label_names == ["x", "y"]
    assert translated.rows == plain.rows
    assert translated.fingerprint != plain.fingerprint


def test_back_translations_reach_the_frozen_features(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    write_translated(folder)
    bert = save_tiny_bert(tmp_path / "bert")
    plugins = Plugins(())
    name = plugins.data_set(str(folder))
    spec = resolve(
        plugins,
        {},
        method="bce",
        dataset=name,
        pi=0.5,
        backbone=str(bert),
        max_tokens=8,
        freeze=True,
        strong_views=1,
        scaling="none",
    )
    task, cpu = prepare(plugins.datasets[name]()), torch.device("cpu")
    loader = SplitLoader(spec, encoder_class(spec, plugins), task, cpu)
    strong = loader.features("train").values["strong"]
    # Of a text of one word nothing can be swapped or dropped: what differs is another text.
    assert len(torch.unique(strong[::2], dim=0)) == 2
    assert len(torch.unique(strong[1::2], dim=0)) == 1
