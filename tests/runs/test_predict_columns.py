"""predict reads new files as `prepare` read the training files: columns by name, in every format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.data.adapter import InputColumns
from ssmlbench.data.plain_inputs import plain_inputs
from ssmlbench.data.prepare import prepare
from ssmlbench.data.user_data import data_class, own_address
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.choose import run_folder
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.saved_model import SavedModel

VALUES = np.round(np.random.default_rng(3).normal(size=(24, 3)), 3).astype(np.float32)
LABELS = (VALUES[:, :2] > 0).astype(int)


def frame(**more: object) -> pd.DataFrame:
    columns = dict(zip(("width", "height", "depth"), VALUES.T, strict=True))
    flags = dict(zip(("red", "big"), LABELS.T, strict=True))
    return pd.DataFrame({**columns, **flags, **more})


pytestmark = pytest.mark.usefixtures("empty_cache")


def learnt_from(table: pd.DataFrame, folder: Path, **options: object) -> InputColumns:
    """What the card of a prepared table says about its columns."""
    folder.mkdir()
    table.to_csv(folder / "train.csv", index=False)
    query = "&".join(f"{key}={value}" for key, value in options.items())
    card = prepare(data_class(own_address(f"{folder}?{query}" if query else str(folder)))()).card
    stored = {k: tuple(v) if isinstance(v, list) else v for k, v in card.columns.items()}
    return InputColumns(**stored)


def read(file: Path, learnt: InputColumns) -> np.ndarray:
    return np.stack([row for _, row in plain_inputs(file, "vector", learnt=learnt)])


FLAGS = {"label-column": "red,big"}


def test_columns_are_matched_by_name_in_any_order_and_format(tmp_path: Path) -> None:
    learnt = learnt_from(frame(), tmp_path / "mine", **FLAGS)
    assert learnt.inputs == ("width", "height", "depth")
    new = frame(id=[f"row {k}" for k in range(24)])[["depth", "id", "width", "big", "height"]]
    new.to_csv(tmp_path / "new.csv", index=False)
    new.to_csv(tmp_path / "index.csv")  # with pandas' row numbers in a first column
    new.to_csv(tmp_path / "semicolons.csv", index=False, sep=";")
    new.to_csv(tmp_path / "windows.tsv", index=False, sep="\t", lineterminator="\r\n")
    new.to_parquet(tmp_path / "new.parquet")
    new[new.depth > 0].to_parquet(tmp_path / "some.parquet")  # keeps an index column
    new.to_json(tmp_path / "new.jsonl", orient="records", lines=True)
    for name in (
        "new.csv",
        "index.csv",
        "semicolons.csv",
        "windows.tsv",
        "new.parquet",
        "new.jsonl",
    ):
        assert np.allclose(read(tmp_path / name, learnt), VALUES), name
        first, _ = next(plain_inputs(tmp_path / name, "vector", learnt=learnt))
        assert first == "row 0"
    assert np.allclose(read(tmp_path / "some.parquet", learnt), VALUES[VALUES[:, 2] > 0])


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["width", "depth"], "no column 'height', which the model learnt from"),
        (["width", "Height", "depth"], "no column 'height'.*Did you mean Height"),
        (["depth"], "no column 'width' and 1 more, which the model learnt from"),
        (["width", "height", "depth", "weight"], "column 'weight'.*had not; leave it out"),
    ],
)
def test_missing_and_extra_columns_are_named(
    columns: list[str], message: str, ending: str, tmp_path: Path
) -> None:
    learnt = learnt_from(frame(), tmp_path / "mine", **FLAGS)
    new = frame(Height=VALUES[:, 1], weight=1.0)[columns]
    file = tmp_path / f"new{ending}"
    new.to_csv(file, index=False) if ending == ".csv" else new.to_parquet(file)
    with pytest.raises(UserError, match=message):
        read(file, learnt)


def test_row_numbers_of_pandas_are_no_input_of_training_either(tmp_path: Path) -> None:
    table = frame().drop(columns=["red", "big"]).assign(labels="a;b")
    table.loc[0, "labels"] = "b"
    for name, written in (
        ("first", table.reset_index(names="")),
        ("again", table.reset_index(names="Unnamed: 0")),
    ):
        assert learnt_from(written, tmp_path / name).inputs == ("width", "height", "depth")


def test_columns_that_training_had_and_did_not_use_may_be_there(tmp_path: Path) -> None:
    options = {"vector-column": "width,height,depth", **FLAGS}
    learnt = learnt_from(frame(day="Monday", id=range(24)), tmp_path / "mine", **options)
    frame(day="Sunday").to_csv(tmp_path / "new.csv", index=False)
    assert np.allclose(read(tmp_path / "new.csv", learnt), VALUES)


def test_a_text_column_need_not_be_named_again(tmp_path: Path) -> None:
    texts = pd.DataFrame({"abstract": ["one", "two"], "number": [7, 8], "labels": ["a", "b"]})
    options = {"text-column": "abstract", "id-column": "number"}
    learnt = learnt_from(texts, tmp_path / "mine", **options)
    texts.drop(columns="labels").to_csv(tmp_path / "new.csv", index=False)
    assert list(plain_inputs(tmp_path / "new.csv", "text", learnt=learnt)) == [
        ("7", "one"),
        ("8", "two"),
    ]
    usual = texts.rename(columns={"abstract": "text"})
    usual.to_csv(tmp_path / "usual.csv", index=False)
    assert next(plain_inputs(tmp_path / "usual.csv", "text", learnt=learnt)) == ("7", "one")


def test_arff_and_libsvm_are_matched_with_their_training_files(tmp_path: Path) -> None:
    head = "@relation 'x: -C 1'\n@attribute y {0,1}\n@attribute a numeric\n@attribute b numeric\n"
    (tmp_path / "d.arff").write_text(f"{head}@data\n1,0.5,2\n0,1.5,3\n")
    card = prepare(data_class(tmp_path / "d.arff")()).card
    learnt = InputColumns(tuple(card.columns["inputs"]), "", tuple(card.columns["all"]))
    assert learnt.inputs == ("a", "b")
    new = tmp_path / "new.arff"
    new.write_text(
        "@relation n\n@attribute b numeric\n@attribute y {0,1}\n@attribute a numeric\n@data\n2,?,0.5\n"
    )
    assert read(new, learnt).tolist() == [[0.5, 2.0]]
    new.write_text("@relation n\n@attribute b numeric\n@data\n2\n")
    with pytest.raises(UserError, match="no column 'a', which the model learnt from"):
        read(new, learnt)

    (tmp_path / "d.svm").write_text("0,1 1:0.5 3:2\n1 2:1\n")
    card = prepare(data_class(tmp_path / "d.svm")()).card
    learnt = InputColumns(tuple(card.columns["inputs"]), "", tuple(card.columns["all"]))
    (tmp_path / "new.svm").write_text("0 3:4\n 1:2\n")
    assert read(tmp_path / "new.svm", learnt).tolist() == [[0, 0, 4], [2, 0, 0]]
    (tmp_path / "new.svm").write_text("0 9:4\n")
    with pytest.raises(
        UserError, match="line 1: feature 9 was in no row that the model learnt from"
    ):
        read(tmp_path / "new.svm", learnt)
    with pytest.raises(UserError, match="did not learn from LIBSVM"):
        read(tmp_path / "new.svm", InputColumns(("a", "b")))


def test_a_folder_of_save_to_disk_is_read(tmp_path: Path) -> None:
    from datasets import Dataset

    learnt = learnt_from(frame(), tmp_path / "mine", **FLAGS)
    Dataset.from_pandas(frame()[["depth", "width", "height"]]).save_to_disk(tmp_path / "saved")
    assert np.allclose(read(tmp_path / "saved", learnt), VALUES)


def test_a_kept_model_knows_the_columns(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    frame().to_csv(folder / "train.csv", index=False)
    plugins = Plugins([f"{folder}?label-column=red,big"])
    spec = resolve(plugins, {}, method="logistic", dataset="mine", regime="given", folds=0)
    execute(spec, plugins, RunContext(tmp_path / "results", "cpu"))
    moved = tmp_path / "moved"
    run_folder(spec.hash, [tmp_path / "results"]).rename(moved)
    model = SavedModel(moved, plugins, device="cpu")
    frame()[["depth", "height", "width"]].to_csv(tmp_path / "new.csv", index=False)
    scores = model.scores(list(read(tmp_path / "new.csv", model.card.columns)))
    assert np.array_equal(scores, model.scores(list(VALUES)))
    assert ((scores > 0.5) == LABELS).mean() > 0.8


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("new.xlsx", "save the sheet of new.xlsx as CSV"),
        ("new.gz", "is packed: unpack it first"),
        ("new.npy.gz", "is packed: unpack it first"),
        ("new.pkl", "as Parquet"),
    ],
)
def test_a_file_that_is_not_read_has_a_hint(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(UserError, match=message):
        read(tmp_path / name, InputColumns())
    with pytest.raises(UserError, match=message):
        data_class(own_address(str(tmp_path / name)))
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / name.replace("new", "train")).write_bytes(b"x")
    with pytest.raises(UserError, match=message.replace("new", "train")):
        data_class(own_address(str(folder)))
