"""Whatever is in a file, the answer is a data set or one clear error: parsers against random files.

`pytest -m slow tests/data/test_fuzz.py` tries many more files than the default run.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.data.adapter import BadRow, Row
from ssmlbench.data.label_lists import label_list
from ssmlbench.data.user_data import data_class

Maker = Callable[[], bytes]


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


ARFF = (
    "@relation 'toy: -C 2'\n@attribute 'a, b' {0,1}\n@attribute c {0,1}\n@attribute d numeric\n"
    "@attribute e {red,'light blue'}\n@data\n1,0,1.5,red\n{0 1,2 -2e1, 3 'light blue'}\n?,1,0,red\n"
)
SEEDS: dict[str, Maker] = {
    ".csv": lambda: b"text,labels\na b,x;y\nc,\"['x', 'y']\"\n\"d\ne\",[]\n",
    ".tsv": lambda: b"text\tx\ty\na b\t1\t0\nc\t\t-1\n",
    ".jsonl": lambda: table().to_json(orient="records", lines=True).encode(),
    ".parquet": parquet,
    ".arff": ARFF.encode,
    ".svm": lambda: b"# rows\n1,3 1:0.5 3:1\n 2:7\n3 1:-1e-2 # end\n",
    ".npz": npz,
}
TOKENS = [
    b"\0", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b'"', b"'", b"\\", b"[", b"]" * 9, b"{", b"}", b",",
    b"\n", b"\r", b"?", b"-1", b"1e999", b"nan", b"\\ud800", b"9" * 30, b"[" * 3000, b"@data\n", b":",
    b"null", "\u202e".encode(), b"\x1b[31m", b"@attribute x {\n", b"-C -9", b"\t", b" ", b"_", b"%",
]  # fmt: skip
edits = st.lists(
    st.tuples(
        st.sampled_from(["insert", "delete", "replace", "cut", "double"]),
        st.floats(0, 1),
        st.sampled_from(TOKENS) | st.binary(min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=6,
)


def edited(content: bytes, changes: list[tuple[str, float, bytes]]) -> bytes:
    for kind, place, token in changes:
        at = int(place * len(content))
        if kind == "insert":
            content = content[:at] + token + content[at:]
        elif kind == "delete":
            content = content[:at] + content[at + len(token) :]
        elif kind == "replace":
            content = content[:at] + token + content[at + len(token) :]
        elif kind == "cut":
            content = content[:at]
        else:
            content = content[:at] + content[max(0, at - 20) : at] + content[at:]
    return content


def read_all(path: Path) -> None:
    """Read a file to its end, as `prepare` does; only a UserError may come out."""
    with suppress(UserError):
        adapter = data_class(DataAddress(str(path), DataOptions(empty_labels="unknown")))()
        count = len(adapter.label_names())
        for split in adapter.splits():
            for row in adapter.rows(split):
                assert isinstance(row, Row | BadRow)
                if isinstance(row, Row):
                    label_list(row.labels, row.unknown, count)
                    assert adapter.kind != "text" or isinstance(row.input, str)


def fuzz(ending: str, examples: int, folder: Path) -> None:
    number = 0

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(edits)
    def attack(changes: list[tuple[str, float, bytes]]) -> None:
        nonlocal number
        number += 1
        file = folder / f"f{number}{ending}"
        file.write_bytes(edited(SEEDS[ending](), changes))
        read_all(file)
        file.unlink()

    attack()


@pytest.mark.parametrize("ending", SEEDS)
def test_a_damaged_file_is_a_clear_error(ending: str, tmp_path: Path) -> None:
    fuzz(ending, 25, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("ending", SEEDS)
def test_many_damaged_files_are_clear_errors(ending: str, tmp_path: Path) -> None:
    fuzz(ending, 5000, tmp_path)


json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.lists(json_values, min_size=1, max_size=4))
def test_any_json_is_a_label_cell_or_a_bad_row(tmp_path: Path, values: list[Any]) -> None:
    file = tmp_path / "f.jsonl"
    rows = [{"text": "t", "labels": ["a"]}, *({"text": "t", "labels": v} for v in values)]
    file.write_text("\n".join(map(json.dumps, rows)))
    read_all(file)
