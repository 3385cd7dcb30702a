"""New rows are read as the same rows are when a data set is prepared, whatever file they are in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ssmlbench.core.errors import UserError
from ssmlbench.data import prepare
from ssmlbench.data.adapter import InputColumns, Kind
from ssmlbench.data.plain_inputs import plain_inputs
from ssmlbench.data.user_data import data_class
from tests.support.raw_layouts import put


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "CMYK", "P"])
@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_a_tiff_file_is_turned_as_prepare_turns_it(
    tmp_path: Path, mode: str, orientation: int
) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    pixels = np.arange(90, dtype=np.uint8).reshape(6, 5, 3)
    (tmp_path / "d").mkdir()
    file = tmp_path / "d" / "a.tiff"
    Image.fromarray(pixels).convert(mode).save(file, exif=exif)
    put(tmp_path / "d/train.csv", "image,labels\na.tiff,x\n")
    prepared = np.asarray(prepare(data_class(tmp_path / "d")()).inputs("train")[0])
    ((_, read),) = plain_inputs(file, "image")
    assert np.array_equal(read, prepared)
    assert read.shape[:2] == ((5, 6) if orientation == 6 else (6, 5))


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("name", ["a.txt", "folder/a.txt", "a.csv"])
def test_a_text_in_another_encoding_is_not_read_as_other_characters(
    tmp_path: Path, encoding: str, name: str
) -> None:
    put(tmp_path / name, "text\ncafé\n", encoding)
    path = tmp_path / "folder" if "/" in name else tmp_path / name
    if (name, encoding) == ("a.csv", "utf-16"):  # the mark tells it
        assert list(plain_inputs(path, "text")) == [("2", "café")]
        return
    with pytest.raises(UserError, match="UTF-"):
        list(plain_inputs(path, "text"))


def test_a_table_without_names_does_not_lose_its_first_row(tmp_path: Path) -> None:
    put(tmp_path / "a.csv", "0.5,1.5\n2.5,3.5\n")
    with pytest.raises(UserError, match="first line should name the columns"):
        list(plain_inputs(tmp_path / "a.csv", "vector"))
    put(tmp_path / "b.csv", "0,1\n2.5,3.5\n")
    assert [row.tolist() for _, row in plain_inputs(tmp_path / "b.csv", "vector")] == [[2.5, 3.5]]


def test_numbers_that_were_read_as_places_are_not_read_as_numbers(tmp_path: Path) -> None:
    put(
        tmp_path / "d-train.arff",
        "@relation 'd: -C 1'\n@attribute y {0,1}\n@attribute c {3,word,1}\n@data\n1,3\n0,1\n1,word\n",
    )
    columns = prepare(data_class(tmp_path / "d-train.arff")()).card.columns
    learnt = InputColumns(**columns)
    assert list(learnt.coded) == ["c"]  # 3 is the first value, and was read as 0
    put(tmp_path / "new.csv", "c\n3\n")
    with pytest.raises(UserError, match="its numbers were read as their places"):
        list(plain_inputs(tmp_path / "new.csv", "vector", None, learnt))


@pytest.mark.parametrize(
    ("kind", "files", "message"),
    [
        ("vector", {"a.csv": "x,y\n1,2\n", "b.npy": ""}, "rows are in b.npy and in a.csv"),
        ("vector", {"a.csv": "x,y\n1,2\n", "b.csv.zst": ""}, "b.csv.zst is of a format"),
        ("vector", {"a.svm": "1:2\n", "b.feather": ""}, "save b.feather as Parquet"),
        ("text", {"a.csv": "text\nx\n", "b.xlsx": ""}, "save the sheet of b.xlsx as CSV"),
        ("image", {"a.png": "", "b.HEIC": ""}, "b.HEIC is of a format that is not read"),
    ],
)
def test_rows_in_other_files_of_a_folder_are_not_left_out(
    kind: Kind, files: dict[str, str], message: str, tmp_path: Path
) -> None:
    for name, content in files.items():
        put(tmp_path / name, content)
    with pytest.raises(UserError) as refused:
        list(plain_inputs(tmp_path, kind))
    assert message in str(refused.value)


def test_of_two_arrays_of_inputs_none_is_chosen(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.eye(2), features=np.ones((2, 2)))
    with pytest.raises(UserError, match="expected one array X"):
        list(plain_inputs(tmp_path / "a.npz", "vector"))
