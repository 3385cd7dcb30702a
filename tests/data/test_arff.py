"""ARFF files of Mulan and MEKA: labels, inputs, and mistakes with file and line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.data import Task, prepare
from ssmlbench.data.user_data import data_class
from tests.datasets.test_datasets import names_of
from tests.support.raw_layouts import put

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
    verified = ssmlbench("data", "verify", file).stdout
    assert "toy: undamaged" in verified
    assert "not found" not in verified  # as of a file
    nowhere = ssmlbench("data", "prepare", "./nowhere")
    assert nowhere.returncode == 2
    assert "no such file or folder" in nowhere.stderr


def test_a_vector_task_hands_out_float_arrays(tmp_path: Path) -> None:
    task: Task = prepare(data_class(write_arff(tmp_path, DENSE, DENSE))())
    assert np.asarray(task.inputs("test")[0]).dtype == np.float32
