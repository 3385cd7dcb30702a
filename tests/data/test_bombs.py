"""A file of a few kilobytes never takes gigabytes, and what is no file is never waited for."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.data import arrays, parquet_metadata, records, text_files
from ssmlbench.data.plain_inputs import plain_inputs
from tests.support.own_data import read
from tests.support.raw_layouts import put

LETTERS = "a" * 2**20
HEAD = "text,a,b\nx,1,0\ny,0,1\n"


pytestmark = pytest.mark.usefixtures("empty_cache")


PACKED: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "a cell": ("train.csv.bz2", bz2.compress, f'{HEAD}"{LETTERS}"'),
    "a cell of many lines": ("train.csv.gz", gzip.compress, HEAD + '"' + "a\n" * 2**19),
    "many cells of two lines": ("train.csv.gz", gzip.compress, f'{HEAD}"' + '\n","' * 2**17),
    "a name of a column": ("train.tsv.xz", lzma.compress, LETTERS),
    "an object": ("train.jsonl.bz2", bz2.compress, f'{{"text": "{LETTERS}'),
    "a list": ("train.json.xz", lzma.compress, f'[{{"text": "{LETTERS}'),
    "a list of many lines": ("train.json.xz", lzma.compress, "[\n" + "\n" * 2**20),
}


@pytest.mark.parametrize("case", PACKED)
def test_a_row_that_unpacks_without_end_is_refused(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "LONGEST_ROW", 2**18)
    monkeypatch.setattr(records, "LONGEST_ROW", 2**18)
    name, pack, text = PACKED[case]
    put(tmp_path / "d" / name, pack(text.encode()))
    with pytest.raises(UserError, match=r"more than [\d,]+ characters"):
        read(tmp_path / "d")


def test_rows_of_any_number_are_read_from_packed_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "LONGEST_ROW", 100)
    rows = "".join(f"t{k},{k % 2},{(k + 1) % 2}\n" for k in range(500))
    put(tmp_path / "d/train.csv.gz", gzip.compress(("text,a,b\n" + rows).encode()))
    assert read(tmp_path / "d").card.rows == {"train": 500}  # type: ignore[attr-defined]


def test_more_rows_than_the_bytes_can_tell_apart_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A billion equal rows, in a Parquet file of a few kilobytes, took hours and the disk."""
    monkeypatch.setattr(text_files, "MANY_ROWS", 2**12)
    rows = 2**15
    files = {
        "train.csv.bz2": bz2.compress(b"text,a,b\n" + b"x,1,0\n" * rows),
        "train.jsonl.xz": lzma.compress(b'{"text": "x", "labels": ["a"]}\n' * rows),
    }
    for name, content in files.items():
        put(tmp_path / name / name, content)
    (tmp_path / "train.parquet").mkdir()
    equal = parquet(text=pa.array(["x"] * 20 * rows))
    pq.write_table(equal, tmp_path / "train.parquet/train.parquet", compression="zstd")
    for name in (*files, "train.parquet"):
        with pytest.raises(UserError, match=r"rows or more in [\d,]+ bytes: nearly all of them"):
            read(tmp_path / name)


def parquet(text: pa.Array | None = None, vector: pa.Array | None = None) -> pa.Table:
    column = {"text": text} if text is not None else {"vector": vector}
    return pa.table({**column, "labels": pa.array([["a"]] * len(text or vector))})


def test_a_parquet_column_of_a_few_bytes_is_no_gigabyte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    file = tmp_path / "d/train.parquet"
    longest = pa.array(["a" * 2**22, "b"])
    same = pa.DictionaryArray.from_arrays(pa.array(np.zeros(200, np.int32)), longest)
    pq.write_table(parquet(text=same), file, compression="zstd")
    assert file.stat().st_size < 5000
    with pytest.raises(UserError, match=r"bytes of column text take up to 0.8 GiB"):
        read(tmp_path / "d")
    monkeypatch.setattr(parquet_metadata, "LARGE_BATCH", 2**23)
    ends = pa.array([0, 2**21], pa.int32())
    zeros = pa.array(np.zeros(2**21, np.int8))
    pq.write_table(parquet(vector=pa.ListArray.from_arrays(ends, zeros)), file, compression="zstd")
    with pytest.raises(UserError, match=r"column vector\S* take up to 0.0 GiB"):
        read(tmp_path / "d")


def test_repeated_values_of_usual_length_are_read(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    words = pa.array(["the same text of a row"] * 5000)
    pq.write_table(parquet(text=words), tmp_path / "d/train.parquet", compression="zstd")
    assert read(tmp_path / "d").card.rows == {"train": 5000}  # type: ignore[attr-defined]


def test_arrays_and_sparse_rows_of_a_few_bytes_are_no_gigabyte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "MOST_PACKED", 2**22)
    put(tmp_path / "d/train.svm", "1 1:1\n0 999999999:1\n")
    with pytest.raises(UserError, match=r"would take 7.5 GiB as dense vectors"):
        read(tmp_path / "d")
    zeros = np.zeros((2**11, 2**10), np.float32)
    np.savez_compressed(tmp_path / "a.npz", X=zeros, y=np.eye(2**11, 2))
    with pytest.raises(UserError, match=r"X.npy would take 0.0 GiB, and is packed in 8,\d+ bytes"):
        read(tmp_path / "a.npz")


HOLLOW: dict[str, dict[str, str]] = {
    "a table": {"train.csv": HEAD},
    "rows of ARFF": {"m-train.arff": "@relation 'm: -C 1'\n@attribute a {0,1}\n@data\n"},
    "rows of LIBSVM": {"train.svm": "0 1:1\n1 2:1\n"},
    "an image": {"a.jpg": "", "train.csv": "image,labels\na.jpg,x\n"},
    "a text": {"a.txt": "", "train.csv": "file,labels\na.txt,x\n"},
    "a file of a label": {"cat/a.jpg": "x", "dog/a.jpg": "y"},
    "names of labels": {"labels.txt": "a\nb\n", "train.csv": "text,labels\nx,0\n"},
}


@pytest.mark.skipif(os.name != "posix", reason="files have no holes there")
@pytest.mark.parametrize("case", HOLLOW)
def test_a_file_that_was_never_written_is_refused(case: str, tmp_path: Path) -> None:
    for name, content in HOLLOW[case].items():
        put(tmp_path / "d" / name, content)
    os.truncate(tmp_path / "d" / next(iter(HOLLOW[case])), 2**34)
    with pytest.raises((UserError, OSError), match="nearly all of it was never written"):
        read(tmp_path / "d")


@pytest.mark.skipif(os.name != "posix", reason="there are no pipes in folders")
def test_a_text_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    put(tmp_path / "d/train.csv", "file,labels\na.txt,x\nb.txt,y\n")
    put(tmp_path / "d/b.txt", "words")
    os.mkfifo(tmp_path / "d/a.txt")
    with pytest.raises(UserError, match=r"train.csv line 2: text file a.txt: it is not a file"):
        read(tmp_path / "d")
    with pytest.raises(UserError, match="it is not a file"):
        list(plain_inputs(tmp_path / "d/train.csv", "text", "file"))
