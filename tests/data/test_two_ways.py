"""Files that can be read in two ways, or that were misread without a word."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import datasets
from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.data.adapter import BadRow, DatasetAdapter, Row
from ssmlbench.data.arff_syntax import ArffHeader, Attribute
from ssmlbench.data.images import as_stored
from ssmlbench.data.plain_inputs import read_image
from ssmlbench.data.user_data import data_class


def adapter(home: Path, **options: Any) -> DatasetAdapter:
    return data_class(DataAddress(str(home), DataOptions(**options)))()


def rows(home: Path, **options: Any) -> list[tuple[Any, list[str]] | str]:
    """The input and labels of each training row; of a bad one, why it is bad."""
    own = adapter(home, **options)
    names, found = own.label_names(), list[tuple[Any, list[str]] | str]()
    for row in own.rows("train"):
        if isinstance(row, BadRow):
            found.append(row.reason)
        else:
            assert isinstance(row, Row)
            found.append((row.input, [names[k] for k in row.labels or ()]))
    return found


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


COUNTED = "".join(f"{i + 5},{i * i},{i % 3},a\n" for i in range(9))


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"d__csv": 'text,labels\nx,"a;b"\ny,"Arts, crafts"\n'}, "--label-separator ';'"),
        ({"d__csv": "text,a,b\nx,1,yes\ny,0,no\n"}, "column 'b' says 'yes'"),
        ({"d__csv": f"index,f1,f2,labels\n{COUNTED}"}, "column 'index' counts the rows"),
        ({"d__jsonl": '{"text":"x","labels":[0,1]}\n{"text":"y","labels":[1,0]}'}, "two labels?"),
        ({"d__csv": 'text,labels\nx,"[0, 1]"\ny,"[1, 0]"\n'}, "two labels?"),
        (
            {"train__csv": "text,labels\nx,1\ny,2\n", "labels__txt": "a\nb\nc\n"},
            "ids of labels count from 0 in labels.txt",
        ),
        (
            {"train__svm": "1 1:0.5\n1,2 2:1\n", "labels__txt": "a\nb\nc\n"},
            "ids of labels count from 0 in labels.txt",
        ),
        (
            {"train__csv": "text,labels\nx,a\n", "train__jsonl": '{"text":"x","labels":["a"]}\n'},
            "train.csv or train.jsonl?",
        ),
        (
            {"train__csv": "text,labels\nx,a\n", "train-0__csv": "text,labels\nx,a\n"},
            "train.csv or train-0.csv?",
        ),
        ({"d__csv": "text,labels\nx,a\n"}, "a row has one input"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(
    tmp_path: Path, files: dict[str, str], named: str
) -> None:
    written(tmp_path, **files)
    alone = "d" in {Path(name.replace("__", ".")).stem for name in files}
    home = next(tmp_path.iterdir()) if alone else tmp_path
    both = "one input" in named
    options = {"text_column": "text", "vector_column": "labels"} if both else {}
    with pytest.raises(UserError) as refused:
        rows(home, **options)
    assert named in str(refused.value)
    assert "\n" not in str(refused.value)


def test_one_id_with_two_names_is_refused(tmp_path: Path) -> None:
    """Files of Hugging Face's library name the ids of labels, each for itself."""
    for part, names in (("train", ["p", "q"]), ("test", ["q", "p"])):
        features = {"text": datasets.Value("string"), "labels": datasets.ClassLabel(names=names)}
        rows_ = {"text": ["x", "y"], "labels": [0, 1]}
        data = datasets.Dataset.from_dict(rows_, features=datasets.Features(features))
        data.to_parquet(tmp_path / f"{part}.parquet")
    with pytest.raises(UserError, match=r"label 0 is q, in train.parquet it is p"):
        list(adapter(tmp_path).rows("test"))
    (tmp_path / "test.parquet").unlink()
    assert rows(tmp_path) == [("x", ["p"]), ("y", ["q"])]
    (tmp_path / "labels.txt").write_text("q\np\n")
    with pytest.raises(UserError, match=r"leave labels.txt out"):
        rows(tmp_path)


def test_what_the_remedies_say_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('text,labels\nx,"a;b"\ny,"Arts, crafts"\n')
    assert rows(file, label_separator=";") == [("x", ["a", "b"]), ("y", ["Arts, crafts"])]
    file.write_text(f"index,f1,f2,labels\n{COUNTED}")
    vectors = rows(file, vector_column="f1,f2")
    assert [v[0].tolist() for v in vectors] == [[i * i, i % 3] for i in range(9)]
    file.write_text(f"id,f1,f2,labels\n{COUNTED}")
    assert len(rows(file)[0][0]) == 2
    (tmp_path / "labels.txt").write_text("a\nb\nc\n")
    (tmp_path / "a.csv").rename(tmp_path / "train.csv")
    (tmp_path / "train.csv").write_text("text,labels\nx,0\ny,2\n")
    assert rows(tmp_path) == [("x", ["a"]), ("y", ["c"])]


@pytest.mark.parametrize("cell", ["0,5 0,7", "0,5;0,7", "1, 2; 3, 4"])
def test_a_vector_with_decimal_commas_is_a_bad_row(tmp_path: Path, cell: str) -> None:
    (tmp_path / "a.tsv").write_text(f"vector\tlabels\n{cell}\ta\n1, 2,3\tb\n")
    bad, good = rows(tmp_path / "a.tsv")
    assert "decimals with a point" in bad
    assert good[0].tolist() == [1.0, 2.0, 3.0]


def test_names_of_columns_between_rows_are_a_bad_row(tmp_path: Path) -> None:
    text = "\ufefftext,labels\nx,a\n"
    (tmp_path / "a.csv").write_text(text + text, encoding="utf-8")
    first, again, second = rows(tmp_path / "a.csv")
    assert first == second == ("x", ["a"])
    assert "names of the columns again" in again
    assert adapter(tmp_path / "a.csv").label_names() == ["a"]


@pytest.mark.parametrize("ending", [".jsonl", ".json"])
def test_a_name_that_comes_twice_in_an_object_is_no_row(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"a{ending}"
    twice = '{"text": "x", "labels": ["a"], "labels": ["b"]}'
    lines = [twice, '{"text": "y", "labels": ["b"]}']
    if ending == ".jsonl":
        file.write_text("\n".join(reversed(lines)))
        assert "comes twice" in rows(file)[1]
    else:
        file.write_text(f"[{', '.join(lines)}]")
        with pytest.raises(UserError, match="comes twice"):
            rows(file)


@pytest.mark.parametrize("mark", [";", "|", ",", " ", ", "])
def test_joined_zeros_and_ones_are_a_place_for_each_label(tmp_path: Path, mark: str) -> None:
    cells = [mark.join(bits) for bits in ("010", "110", "000")]
    lines = [f'x{k},"{cell}"' for k, cell in enumerate(cells)]
    (tmp_path / "a.csv").write_text("\n".join(["text,labels", *lines]) + "\n")
    assert [row[1] for row in rows(tmp_path / "a.csv")] == [["1"], ["0", "1"], []]


def test_joined_ids_stay_ids(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,labels\nx,0;1\ny,1\nz,1;2\n")
    assert [row[1] for row in rows(tmp_path / "a.csv")] == [["0", "1"], ["1"], ["1", "2"]]


@pytest.mark.parametrize(
    ("relation", "labels"),
    [("r: -C 1", ["a"]), ("-C -1", ["c"]), ("vitamin-C 2", None), ("r -C2", None)],
)
def test_the_count_of_labels_is_an_option_of_meka_and_no_part_of_a_word(
    relation: str, labels: Sequence[str] | None
) -> None:
    header = ArffHeader(relation, [Attribute(name, (), {}) for name in "abc"])
    assert header.meka_labels == labels


def test_arrays_that_tell_training_from_test_rows_are_refused(tmp_path: Path) -> None:
    arrays = {"X": np.ones((3, 2)), "y": np.eye(3, 2)}
    for name in ("train_mask", "test_idx", "split"):
        np.savez(tmp_path / "a.npz", **arrays, **{name: np.ones(3)})
        with pytest.raises(UserError, match=f"array {name} is not read"):
            rows(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", **arrays, label_names=np.array([b"cat", b"dog"]))
    assert adapter(tmp_path / "a.npz").label_names() == ["cat", "dog"]
    np.savez(tmp_path / "a.npz", **arrays, label_names=np.array([b"cat", b"\xff"]))
    with pytest.raises(UserError, match="label_names is not UTF-8"):
        adapter(tmp_path / "a.npz")


def png(width: int, height: int, depth: int, lines: list[bytes], transparent: int) -> bytes:
    """A PNG file of grey levels, written by hand: Pillow writes no such file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    head = struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [
            chunk(b"IHDR", head),
            chunk(b"tRNS", struct.pack(">H", transparent)),
            chunk(b"IDAT", zlib.compress(b"".join(b"\0" + line for line in lines))),
            chunk(b"IEND", b""),
        ]
    )


def grey(content: bytes, file: Path) -> list[list[int]]:
    """The levels of an image, as prepared and as `predict` reads it."""
    stored = np.asarray(Image.open(io.BytesIO(as_stored(content)[0])).convert("L"))
    file.write_bytes(content)
    assert np.array_equal(np.asarray(Image.fromarray(read_image(file)).convert("L")), stored)
    return stored.tolist()


def test_a_transparent_level_of_grey_is_white_whatever_the_bits(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    assert grey(png(2, 1, 2, [bytes([0b01_10_0000])], 1), file) == [[255, 170]]
    assert grey(png(2, 1, 4, [bytes([0x1A])], 1), file) == [[255, 170]]
    assert grey(png(2, 1, 8, [bytes([1, 170])], 1), file) == [[255, 170]]
    assert grey(png(2, 1, 16, [struct.pack(">HH", 1, 170 * 257)], 1), file) == [[255, 170]]


@pytest.mark.parametrize("turned", [False, True])
def test_a_tiff_file_of_16_bits_in_which_zero_is_white_is_turned_around(
    tmp_path: Path, turned: bool
) -> None:
    levels = np.array([[0, 257 * 5, 65535]], dtype=np.uint16)
    tags = {262: 0, **({274: 3} if turned else {})}
    content = io.BytesIO()
    Image.fromarray(levels).save(content, "TIFF", tiffinfo=tags)
    expected = [255, 250, 0]
    assert grey(content.getvalue(), tmp_path / "a.tif") == [expected[:: -1 if turned else 1]]
