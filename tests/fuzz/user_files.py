"""Files that users write: data sets, inputs of `predict`, grids and tables of papers."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from ssmlbench.boards.papers import Paper, read_paper
from ssmlbench.boards.published import _read_values, published_folder
from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.data.adapter import BadRow, Row
from ssmlbench.data.label_lists import label_list
from ssmlbench.data.plain_inputs import plain_inputs
from ssmlbench.data.user_data import data_class
from ssmlbench.grid.toml_file import read_grid
from tests.fuzz.attack import Read, Target, fixed

PAPER = "cap-readme"


def read_rows(path: Path) -> None:
    """Read a data set to its end, as `prepare` does."""
    adapter = data_class(DataAddress(str(path), DataOptions(empty_labels="unknown")))()
    count = len(adapter.label_names())
    for split in adapter.splits():
        for row in adapter.rows(split):
            assert isinstance(row, Row | BadRow)
            if isinstance(row, Row):
                label_list(row.labels, row.unknown, count)
                assert adapter.kind != "text" or isinstance(row.input, str)


def data_file(ending: str) -> Read:
    def read(content: bytes, folder: Path) -> None:
        file = folder / f"mine{ending}"
        file.write_bytes(content)
        read_rows(file)

    return read


def input_file(ending: str, kind: str) -> Read:
    """What `predict --input` reads."""

    def read(content: bytes, folder: Path) -> None:
        file = folder / f"mine{ending}"
        file.write_bytes(content)
        for name, _ in plain_inputs(file, kind):
            assert isinstance(name, str)

    return read


def part_of_folder(name: str, rest: Callable[[Path], object]) -> Read:
    """One file of a folder whose other files are good."""

    def read(content: bytes, folder: Path) -> None:
        home = folder / "mine"
        rest(home)
        (home / name).write_bytes(content)
        read_rows(home)

    return read


def copied(make: Callable[[], Path]) -> Callable[[Path], object]:
    return lambda home: shutil.copytree(make(), home, dirs_exist_ok=True)


def table() -> pd.DataFrame:
    return pd.DataFrame({"text": ["a b", "c", "d"], "labels": [["x", "y"], [], ["x"]]})


def parquet() -> bytes:
    out = io.BytesIO()
    table().to_parquet(out)
    return out.getvalue()


def npz() -> bytes:
    out = io.BytesIO()
    np.savez(out, X=np.ones((3, 2), np.float32), y=np.array([[1, 0], [0, 1], [-1, 1]]))
    return out.getvalue()


def npy() -> bytes:
    out = io.BytesIO()
    np.save(out, np.ones((3, 2), np.float32))
    return out.getvalue()


def image() -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save(out, "PNG")
    return out.getvalue()


ARFF = (
    "@relation 'toy: -C 2'\n@attribute 'a, b' {0,1}\n@attribute c {0,1}\n@attribute d numeric\n"
    "@attribute e {red,'light blue'}\n@data\n1,0,1.5,red\n{0 1,2 -2e1, 3 'light blue'}\n?,1,0,red\n"
)
XML = '<labels xmlns="http://mulan.sourceforge.net/labels"><label name="a, b"/><label name="c"/></labels>'
CSV = b"text,labels\na b,x;y\nc,\"['x', 'y']\"\n\"d\ne\",[]\n"
GRID = b"""methods = ["bce", "cap"]
datasets = ["multidigits", "./mine.csv?holdout=0.2"]
pi = [0.05, 0.1]
seeds = 3
epochs = 20
[set]
loss = "bce"
[set.cap]
positive_share = 0.9
[[exclude]]
method = "bce"
pi = 0.1
"""


def arff_folder(home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "toy-train.arff").write_text(ARFF.replace(": -C 2", ""))


def array_folder(home: Path) -> None:
    home.mkdir(exist_ok=True)
    np.save(home / "y.npy", np.array([[1, 0], [0, 1], [-1, 1]]))


def table_folder(home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "train.csv").write_bytes(CSV)


@cache
def saved_folder() -> Path:
    """A folder of Hugging Face's `save_to_disk`."""
    import datasets

    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "labels": datasets.List(datasets.ClassLabel(names=["x", "y"])),
        }
    )
    rows = {"text": ["a b", "c", "d"], "labels": [[0, 1], [], [0]]}
    folder = Path(tempfile.mkdtemp()) / "saved"
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(folder))
    return folder


def saved_file(name: str) -> Target:
    return Target(
        part_of_folder(name, copied(saved_folder)), lambda: [(saved_folder() / name).read_bytes()]
    )


def read_grid_file(content: bytes, folder: Path) -> None:
    (folder / "grid.toml").write_bytes(content)
    read_grid(folder / "grid.toml")


def read_paper_file(content: bytes, folder: Path) -> None:
    (folder / "paper.toml").write_bytes(content)
    assert read_paper(folder / "paper.toml").citation


@cache
def published_paper() -> Paper:
    return read_paper(published_folder() / f"{PAPER}.toml")


def read_paper_numbers(content: bytes, folder: Path) -> None:
    (folder / "paper.csv").write_bytes(content)
    for value in _read_values(published_paper(), folder / "paper.csv"):
        assert value.rounding > 0
        assert isinstance(value.value, float)


USER_FILES = {
    "csv": Target(data_file(".csv"), fixed(CSV)),
    "tsv": Target(data_file(".tsv"), fixed(b"text\tx\ty\na b\t1\t0\nc\t\t-1\n")),
    "jsonl": Target(
        data_file(".jsonl"), lambda: [table().to_json(orient="records", lines=True).encode()]
    ),
    "json": Target(
        data_file(".json"),
        lambda: [
            table().to_json(orient="records").encode(),
            table().to_json().encode(),
            table().to_json(orient="records", lines=True).encode(),
        ],
    ),
    "parquet": Target(data_file(".parquet"), lambda: [parquet()]),
    "arff": Target(data_file(".arff"), fixed(ARFF.encode())),
    "xml": Target(part_of_folder("toy.xml", arff_folder), fixed(XML.encode())),
    "svm": Target(data_file(".svm"), fixed(b"# rows\n1,3 1:0.5 3:1\n 2:7\n3 1:-1e-2 # end\n")),
    "npz": Target(data_file(".npz"), lambda: [npz()]),
    "npy": Target(part_of_folder("X.npy", array_folder), lambda: [npy()]),
    "labels": Target(part_of_folder("labels.txt", table_folder), fixed(b"x\ny\n")),
    "saved-state": saved_file("state.json"),
    "saved-info": saved_file("dataset_info.json"),
    "saved-rows": saved_file("data-00000-of-00001.arrow"),
    "input-csv": Target(input_file(".csv", "vector"), fixed(b"id,a,b\n1,0.5,2\n2,1e3,-1\n")),
    "input-npz": Target(input_file(".npz", "vector"), lambda: [npz()]),
    "input-npy": Target(input_file(".npy", "vector"), lambda: [npy()]),
    "input-image": Target(input_file(".png", "image"), lambda: [image()]),
    "input-text": Target(input_file(".txt", "text"), fixed(b"a b\nc\n")),
    "grid": Target(read_grid_file, fixed(GRID)),
    "paper": Target(
        read_paper_file, lambda: [(published_folder() / f"{PAPER}.toml").read_bytes()[:3000]]
    ),
    "paper-numbers": Target(
        read_paper_numbers, lambda: [(published_folder() / f"{PAPER}.csv").read_bytes()[:600]]
    ),
}
