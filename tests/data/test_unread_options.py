"""An option that a format does not read is refused: it would change nothing without a word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.data.user_data import data_class

ROWS = 8
VALUES = {"holdout": 0.5, "holdout_seed": 3, "drop_leaks": True, "allow_outside": True}
"""Of the options that are not words."""
WORDS = {"empty_labels": "none", "hub_config": "default", "label_separator": "/"}


def arff(folder: Path) -> Path:
    lines = ["@relation r", "@attribute x numeric", "@attribute a {0,1}", "@attribute b {0,1}"]
    rows = [f"{i},{i % 2},{1 - i % 2}" for i in range(ROWS)]
    (folder / "mine.arff").write_text("\n".join([*lines, "@data", *rows]) + "\n")
    labels = '<labels xmlns="http://mulan.sourceforge.net/labels">{}</labels>'
    names = '<label name="a"></label><label name="b"></label>'
    (folder / "mine.xml").write_text(labels.format(names))
    return folder / "mine.arff"


def arrays(folder: Path) -> Path:
    labels = np.eye(2, dtype=np.int8)[np.arange(ROWS) % 2]
    np.savez(folder / "mine.npz", X=np.arange(ROWS * 2.0).reshape(ROWS, 2), Y=labels)
    return folder / "mine.npz"


def libsvm(folder: Path) -> Path:
    (folder / "train.svm").write_text("".join(f"{i % 2} 1:{i}\n" for i in range(ROWS)))
    return folder


def label_folders(folder: Path) -> Path:
    for i in range(ROWS):
        file = folder / "train" / "ab"[i % 2] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (i, i, i)).save(file)
    return folder


def table(folder: Path) -> Path:
    rows = [f"{i},text {i},{'ab'[i % 2]},train" for i in range(ROWS)]
    (folder / "mine.csv").write_text("\n".join(["id,text,labels,split", *rows]) + "\n")
    return folder / "mine.csv"


COLUMNS = {"text_column", "image_column", "vector_column", "label_column", "id_column"}
TABLE = {*COLUMNS, "split_column", "label_separator", "empty_labels", "allow_outside"}
READ = {arff: {"empty_labels"}, arrays: {"empty_labels"}, libsvm: {"empty_labels"}}
READ |= {label_folders: {"allow_outside"}, table: TABLE}
COMMON = {"holdout", "holdout_seed", "drop_leaks"}


def problem(path: Path, **options: Any) -> str:
    """What is wrong with the options, "" if nothing is."""
    try:
        data_class(DataAddress(str(path), DataOptions(**options)))().splits()
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("option", sorted(DataOptions.names() - COMMON))
@pytest.mark.parametrize("write", READ, ids=lambda write: write.__name__)
def test_an_option_is_read_or_refused(
    tmp_path: Path, write: Callable[[Path], Path], option: str
) -> None:
    value = {**VALUES, **WORDS}.get(option, "text")
    found = problem(write(tmp_path), **{option: value})
    refused = f"--{option.replace('_', '-')} is not for" in found
    assert refused == (option not in READ[write]), found


@pytest.mark.parametrize("write", READ, ids=lambda write: write.__name__)
def test_every_format_holds_rows_out_and_drops_leaks(
    tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    path = write(tmp_path)
    assert not problem(path, holdout=0.5, holdout_seed=3, drop_leaks=True)
    assert "draws the rows of --holdout, which is not given" in problem(path, holdout_seed=3)
