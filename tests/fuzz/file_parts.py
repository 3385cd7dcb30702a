"""Parts of users' files without the file, and addresses of data as they are typed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ssmlbench.core.data_options import DataAddress
from ssmlbench.data.adapter import BadRow, DatasetAdapter, Row
from ssmlbench.data.arff_syntax import Attribute, read_values
from ssmlbench.data.label_cells import flag, label_values, multi_hot_width
from ssmlbench.data.libsvm import SparseRow, read_line
from ssmlbench.data.row_checks import RowChecker, StoredRow
from ssmlbench.data.table_rows import vector_of
from tests.fuzz.attack import Target, fixed

CELLS = (
    b"x;y", b"['x', 'y']", b'["x", "y"]', b"[0 1]", b"('x', 'y')", b"{'x'}", b"set()", b"1.0", b"-1", b"",
    b"array(['x', 'y'], dtype=object)", b"[np.str_('x'), np.int64(1)]", b"(other)", b"a|b,c", b"[]",
)  # fmt: skip
ADDRESSES = (b"mine?holdout=0.2&drop-leaks=True", b"./a b", b"hf:a/b@c?id-column=%41")
ARFF_ROWS = b"1,0.5,red\n?,-1e3,'light blue'\n{0 1,2 'it\\'s'}\n{}\n0,1,\"light blue\"\n"


class Pictures(DatasetAdapter):
    """A data set of images, for its rows alone."""

    name = "pictures"
    kind = "image"

    def label_names(self) -> list[str]:
        return ["a"]

    def rows(self, split: str) -> Iterator[Row | BadRow]:
        yield from ()


PICTURES = Pictures()


def pictures() -> list[bytes]:
    """Small images of several modes and formats."""
    from PIL import Image

    found = []
    for mode, kind in (
        ("I;16", "TIFF"),
        ("RGBA", "PNG"),
        ("P", "GIF"),
        ("L", "JPEG"),
        ("1", "PNG"),
    ):
        content = io.BytesIO()
        Image.new(mode, (3, 2)).save(content, kind)
        found.append(content.getvalue())
    return found


def read_cell(content: bytes, _: Path) -> None:
    """The cell of a table that has labels."""
    text = content.decode(errors="surrogateescape")
    values = label_values(text, "", "unknown", "row 1")
    assert values is None or isinstance(values, BadRow) or all(isinstance(v, str) for v in values)
    assert multi_hot_width([text]) >= 0
    flag(text)


def read_vector(content: bytes, _: Path) -> None:
    """The cell of a table that has a vector."""
    vector = vector_of({"vector": content.decode(errors="surrogateescape")}, ["vector"])
    assert isinstance(vector, BadRow) or vector.dtype == np.float32


def read_address(content: bytes, _: Path) -> None:
    """A path with options, as grid files and other processes have it: its text means the same."""
    text = content.decode(errors="surrogateescape")
    if "\0" in text or len(text) > 200:  # no file has such a name
        return
    address = DataAddress.parse(text)
    assert DataAddress.parse(address.text) == address or not address.options.given


def read_picture(content: bytes, _: Path) -> None:
    """An image of a data set."""
    row = RowChecker(PICTURES, 1).checked(Row(content, (0,)), "train", "row 1")
    assert isinstance(row, BadRow | StoredRow)


def read_arff_rows(content: bytes, _: Path) -> None:
    """The rows of an ARFF file, after a good header."""
    attributes = [
        Attribute.nominal("a", ("0", "1")),
        Attribute("b", (), {}),
        Attribute.nominal("c", ("red", "light blue", "it's")),
    ]
    empty = np.array([attribute.absent for attribute in attributes])
    for line in content.decode(errors="surrogateescape").split("\n"):
        values = read_values(line.strip(), attributes, empty, {0})
        assert isinstance(values, str) or values.shape == (3,)


def read_svm_row(content: bytes, _: Path) -> None:
    text = content.decode(errors="surrogateescape").rstrip()
    if text.strip():
        row = read_line(text)
        assert isinstance(row, BadRow | SparseRow)


FILE_PARTS = {
    "cell": Target(read_cell, fixed(*CELLS)),
    "vector": Target(read_vector, fixed(b"[0.5, 1e3]", b"1;2;3", b"[1. 2.\n 3.]")),
    "address": Target(read_address, fixed(*ADDRESSES)),
    "picture": Target(read_picture, pictures),
    "arff-rows": Target(read_arff_rows, fixed(ARFF_ROWS)),
    "svm-row": Target(read_svm_row, fixed(b"1,3 1:0.5 3:1 qid:4", b" 2:7", b"3.0 1:-1e-2")),
}
