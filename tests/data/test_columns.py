"""Columns are matched by name in every tabular format; other columns or types are errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.data import Task, prepare
from ssmlbench.data.user_data import data_class
from tests.support.raw_layouts import put

pytestmark = pytest.mark.usefixtures("empty_cache")


TRAIN = pd.DataFrame(
    {"height": [1.5, 2.5], "width": [3.5, -4.5], "red": [1, 0], "blue": [0, 1], "round": [1, 1]}
)
TEST = pd.DataFrame({"height": [5.5], "width": [6.5], "red": [0], "blue": [1], "round": [0]})
LABELS = ["red", "blue", "round"]


def arff_text(frame: pd.DataFrame, types: dict[str, str]) -> str:
    header = "".join(
        f"@attribute {name} {types.get(name, '{0,1}' if name in LABELS else 'numeric')}\n"
        for name in frame.columns
    )
    lines = "\n".join(",".join(map(str, row)) for row in frame.itertuples(index=False))
    return f"@relation toy\n{header}@data\n{lines}\n"


def write_arff(folder: Path, split: str, frame: pd.DataFrame, **types: str) -> Path:
    put(folder / f"toy-{split}.arff", arff_text(frame, types))
    named = "".join(f'<label name="{name}"/>' for name in LABELS)
    put(folder / "toy.xml", f"<labels>{named}</labels>")
    return folder / "toy.arff"


def write_csv(folder: Path, split: str, frame: pd.DataFrame) -> Path:
    put(folder / f"{split}.csv", frame.to_csv(index=False))
    return folder


def write_tsv(folder: Path, split: str, frame: pd.DataFrame) -> Path:
    put(folder / f"{split}.tsv", frame.to_csv(index=False, sep="\t"))
    return folder


def write_jsonl(folder: Path, split: str, frame: pd.DataFrame) -> Path:
    put(folder / f"{split}.jsonl", frame.to_json(orient="records", lines=True))
    return folder


def write_parquet(folder: Path, split: str, frame: pd.DataFrame) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(folder / f"{split}.parquet")
    return folder


FORMATS: dict[str, Callable[[Path, str, pd.DataFrame], Path]] = {
    "arff": write_arff,
    "csv": write_csv,
    "tsv": write_tsv,
    "jsonl": write_jsonl,
    "parquet": write_parquet,
}


def prepared(form: str, folder: Path, test: pd.DataFrame, train: pd.DataFrame = TRAIN) -> Task:
    FORMATS[form](folder, "train", train)
    path = FORMATS[form](folder, "test", test)
    options = {} if form == "arff" else {"label_column": ",".join(LABELS)}
    return prepare(data_class(DataAddress(str(path), DataOptions(**options)))())


def vectors(task: Task, split: str) -> list[list[float]]:
    return np.stack(task.inputs(split)[:]).tolist()


@pytest.mark.parametrize("form", FORMATS)
def test_the_order_of_columns_in_a_file_does_not_matter(form: str, tmp_path: Path) -> None:
    straight = prepared(form, tmp_path / "straight" / "toy", TEST)
    shuffled = TEST[["round", "width", "blue", "height", "red"]]
    task = prepared(form, tmp_path / "shuffled" / "toy", shuffled)
    assert vectors(task, "test") == vectors(straight, "test") == [[5.5, 6.5]]
    assert task.truth("test").tolist() == straight.truth("test").tolist() == [[0, 1, 0]]
    assert task.card.fingerprint == straight.card.fingerprint


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("column", ["height", "blue"])
def test_a_missing_column_is_named(form: str, column: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=column):
        prepared(form, tmp_path / "toy", TEST.drop(columns=column))
    with pytest.raises(UserError, match=column):
        prepared(form, tmp_path / "toy2", TEST.rename(columns={column: column.title()}))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("longer", ["train", "test"])
def test_a_column_that_only_one_file_has_is_named(form: str, longer: str, tmp_path: Path) -> None:
    train = TRAIN.assign(weight=1.0) if longer == "train" else TRAIN
    test = TEST.assign(weight=1.0) if longer == "test" else TEST
    with pytest.raises(UserError, match="weight"):
        prepared(form, tmp_path / "toy", test, train)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_label_column_that_only_the_test_file_has_is_named(form: str, tmp_path: Path) -> None:
    train = pd.DataFrame({"text": ["a", "b"], "red": [1, 0]})
    test = pd.DataFrame({"text": ["c"], "red": [1], "blue": [1]})
    FORMATS[form](tmp_path / "toy", "train", train)
    FORMATS[form](tmp_path / "toy", "test", test)
    with pytest.raises(UserError, match="blue"):
        prepare(data_class(tmp_path / "toy")())


def test_a_column_of_another_type_is_named(tmp_path: Path) -> None:
    FORMATS["arff"](tmp_path / "a", "train", TRAIN)
    for k, types in enumerate(({"height": "{5.5}"}, {"red": "numeric"}, {"blue": "{0,1,2}"})):
        file = write_arff(tmp_path / "a", "test", TEST, **types)
        with pytest.raises(UserError, match=f"attribute '{next(iter(types))}' is"):
            prepare(data_class(file)(), overwrite=bool(k))
    words = TEST.astype({"height": str})
    with pytest.raises(
        UserError, match=r"column 'height' holds text, in train.parquet it holds num"
    ):
        prepared("parquet", tmp_path / "p" / "toy", words)
    for form in ("csv", "jsonl", "tsv"):
        with pytest.raises(UserError, match="column height: 'tall' is not a number"):
            prepared(form, tmp_path / form / "toy", TEST.assign(height="tall"))


def test_labels_are_names_everywhere_or_ids_everywhere(tmp_path: Path) -> None:
    train = pd.DataFrame({"text": ["a"], "labels": [["red", "blue"]]})
    test = pd.DataFrame({"text": ["b"], "labels": [[0]]})
    for form in ("jsonl", "parquet"):
        FORMATS[form](tmp_path / form, "train", train)
        FORMATS[form](tmp_path / form, "test", test)
        with pytest.raises(UserError, match="one form"):
            prepare(data_class(tmp_path / form)())


def test_nominal_values_in_another_order_mean_the_same(tmp_path: Path) -> None:
    train = TRAIN.assign(height=["red", "blue"])
    test = TEST.assign(height=["blue"])
    write_arff(tmp_path, "train", train, height="{red,blue}")
    file = write_arff(tmp_path, "test", test, height="{blue,red}")
    task = prepare(data_class(file)())
    assert vectors(task, "train") == [[0, 3.5], [1, -4.5]]
    assert vectors(task, "test") == [[1, 6.5]]
    # In a sparse row, an attribute that is not named has the first value of that file.
    put(tmp_path / "toy-test.arff", arff_text(test, {"height": "{blue,red}"}).replace(
        "blue,6.5,0,1,0", "{1 6.5,3 1}"
    ))  # fmt: skip
    assert vectors(prepare(data_class(file)()), "test") == [[1, 6.5]]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_columns_that_are_not_chosen_may_differ(form: str, tmp_path: Path) -> None:
    frames = {"train": TRAIN, "test": TEST.assign(comment="new")}
    for split, frame in frames.items():
        FORMATS[form](tmp_path / "toy", split, frame)
    options = DataOptions(vector_column="height,width", label_column="r*,blue")
    task = prepare(data_class(DataAddress(str(tmp_path / "toy"), options))())
    assert task.card.label_names == ["red", "round", "blue"]
    assert vectors(task, "test") == [[5.5, 6.5]]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "train.csv", "text,red,red\na,1,0\n")
    with pytest.raises(UserError, match="two columns are called 'red'"):
        data_class(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"text_column": "txt"},
            "--text-column txt: train.csv has no such column. Did you mean text",
        ),
        ({"label_column": "l_*"}, r"--label-column l_\*: no column of train.csv"),
        ({"id_column": "key"}, "--id-column key"),
        ({"vector_column": "a,b"}, "--vector-column a"),
    ],
)
def test_a_column_option_that_names_no_column(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    put(tmp_path / "train.csv", "text,labels\na,x\n")
    with pytest.raises(UserError, match=message):
        data_class(DataAddress(str(tmp_path), DataOptions(**options)))
