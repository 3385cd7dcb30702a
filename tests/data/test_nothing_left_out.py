"""Rows, columns and values that would be left out, or be read as others, are refused or noted."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasets
from ssmlbench.core.errors import UserError
from ssmlbench.data.user_data import data_class
from tests.support.own_data import read
from tests.support.raw_layouts import jpeg, put

FOLDERS = {"train/cat/1.png": "x", "train/dog/2.png": "y"}
TWO = "text,a,b\nw,1,0\nx,0,1\n"
OTHER = TWO.replace("w,", "y,").replace("x,", "z,")
ARFF = (
    "@relation 'm: -C 2'\n@attribute a {0,1}\n@attribute b {0,1}\n@attribute x numeric\n@data\n"
    "1,0,2\n0,1,3\n"
)
XML = '<labels><label name="{}"/></labels>'


pytestmark = pytest.mark.usefixtures("empty_cache")


def written(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        put(folder / name, content)
    return folder if len(files) > 1 or "all.csv" not in files else folder / "all.csv"


REFUSED: dict[str, tuple[dict[str, str | bytes], str]] = {
    "a label that has no value in the training table": (
        {"train.csv": "text,a,b\nx,1,\ny,0,\n", "test.csv": "text,a,b\nz,1,1\n"},
        "column 'b' has 0 and 1, and none in train.csv",
    ),
    "a label that has no value in the first shard": (
        {"train-0.csv": "text,a,b\nx,1,\n", "train-1.csv": "text,a,b\ny,0,1\n"},
        "column 'b' has 0 and 1, and none in train-0.csv",
    ),
    "a label that is -1 in every row": (
        {"train.csv": "text,a,b\nx,1,-1\ny,0,-1\n"},
        "column 'b' has -1, and never 0 or 1",
    ),
    "images beside texts": (
        {"train.csv": "image,text,labels\na.png,x,p\n", "a.png": jpeg(1)},
        "type --text-column text or --image-column image",
    ),
    "vectors beside texts": (
        {"train.jsonl": '{"text": "x", "embedding": [0.5, 1], "labels": ["p"]}\n'},
        "type --text-column text or --vector-column embedding",
    ),
    "a file without an ending in a folder of a label": (
        {"cat/1.png": jpeg(1), "dog/2.png": jpeg(2), "dog/3": jpeg(3)},
        "dog/3: its name has no ending",
    ),
    "a column of 0 and 1 called label beside others": (
        {"train.csv": "text,toxic,label\nx,1,0\ny,0,1\n"},
        "--label-column label,toxic if each is a label",
    ),
    "a column of 0 and 1 that tells test rows": (
        {"all.csv": "text,a,is_test\nx,1,0\ny,0,1\n"},
        "'is_test' seems to tell training rows from test rows",
    ),
    "the same beside lists of labels": (
        {"all.csv": "text,labels,In Train-Set\nx,a,0\ny,b,1\n"},
        "--split-column 'In Train-Set'",
    ),
    "test rows in a training table": (
        {"train.csv": "text,labels,split\nx,a,train\ny,b,Test\n"},
        "train.csv line 3: column split says 'Test', in a table of train rows",
    ),
    "a number that is missing among others": (
        {"train.csv": 'vector,labels\n"1,,2",a\n"2,3",b\n'},
        "train.csv line 2: column vector: a missing value",
    ),
    "a table beside a folder with one": (
        {"train.csv": TWO, "train/metadata.csv": OTHER},
        "train.csv or train/metadata.csv?",
    ),
    "a table beside the folder data": (
        {"train.csv": TWO, "data/train.csv": OTHER},
        "train.csv or data/train.csv?",
    ),
    "two folders of one part": (
        {"train/labels.csv": TWO, "training/labels.csv": OTHER},
        "train/labels.csv or training/labels.csv?",
    ),
    "a shard of a format that is not read": (
        {"train-0.csv": TWO, "train-1.feather": b"x"},
        "train-1.feather has rows that are not read; save train-1.feather as Parquet",
    ),
    "test rows that are packed": (
        {"train.csv": TWO, "test.csv.tar.gz": b"x"},
        "test.csv.tar.gz is packed: unpack it first, or move it away",
    ),
    "unlabelled rows in a spreadsheet": (
        {"train.csv": TWO, "unlabelled.xlsx": b"x"},
        "save the sheet of unlabelled.xlsx as CSV",
    ),
    "a second LIBSVM file of training rows": (
        {"train.svm": "0 1:1\n1 2:1\n", "train-1.svm": "0 1:1\n"},
        "train-1.svm would not be read",
    ),
    "LIBSVM test rows that are packed": (
        {"train.svm": "0 1:1\n1 2:1\n", "test.svm.gz": gzip.compress(b"0 1:1\n")},
        "test.svm.gz is packed",
    ),
    "ARFF test rows that are packed": (
        {"m-train.arff": ARFF, "m-test.arff.gz": gzip.compress(ARFF.encode())},
        "m-test.arff.gz has rows that are not read",
    ),
    "two ARFF files of training rows": (
        {"m-train.arff": ARFF, "M_train.arff": ARFF},
        "M_train.arff or m-train.arff?",
    ),
    "labels of the relation that the XML does not name": (
        {"m-train.arff": ARFF, "M.XML": XML.format("b")},
        "counts the labels a, b…, and M.XML names b…",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_be_left_out_or_misplaced_is_refused(case: str, tmp_path: Path) -> None:
    files, message = REFUSED[case]
    with pytest.raises(UserError) as refused:
        read(written(tmp_path / "d", files))
    assert message in str(refused.value)


SVM, ROWS = "0 1:1\n1 2:1\n", "text,labels\nx,cat\ny,dog\n"
FORMS: dict[str, tuple[dict[str, str | bytes], str]] = {
    "label folders beside a table": ({"train.csv": ROWS, "test/cat/1.png": jpeg(1)}, "test/"),
    "texts without labels beside a table": ({"train.csv": ROWS, "Test/1.txt": "z"}, "Test/"),
    "texts beside the table of their part": ({"train.csv": ROWS, "train/cat/1.txt": "z"}, "train/"),
    "images beside vectors": ({"train.svm": SVM, "unlabelled/1.png": jpeg(1)}, "unlabelled/"),
    "two tables in a folder": (
        {"train.csv": ROWS, "test/a.csv": ROWS, "test/b.csv": ROWS},
        "test/",
    ),
    "a table that is called after its folder": (
        {"train.csv": ROWS, "test/test.csv": ROWS},
        "test/",
    ),
    "a table beside vectors": ({"train.svm": SVM, "test.csv": ROWS}, "test.csv"),
    "arrays beside texts": ({"train.csv": ROWS, "X_test.npy": b"x"}, "X_test.npy"),
    "arrays in a folder": ({"train.svm": SVM, "test/x.npz": b"x"}, "test/"),
    "a table in another place": ({"train.csv": ROWS, "data/test.csv": ROWS}, "data/test.csv"),
    "texts beside images": (
        {"train/cat/1.txt": "y", "train/dog/1.txt": "z", "test/cat/1.png": jpeg(1)},
        "train/",
    ),
    "two folders of a part": (
        {
            f"{part}/{name}": jpeg(1)
            for part in ("train", "Training")
            for name in ("cat/1.png", "dog/1.png")
        },
        "Training/",
    ),
}


@pytest.mark.parametrize("case", FORMS)
def test_rows_in_another_form_than_those_that_are_read_are_refused(
    case: str, tmp_path: Path
) -> None:
    """One of the two was read, and the other was not mentioned."""
    files, left_out = FORMS[case]
    with pytest.raises(UserError, match=rf"d: {left_out} would not be read beside \S+; write all"):
        data_class(written(tmp_path / "d", files))


@pytest.mark.parametrize(
    "files",
    [
        {"train.csv": ROWS, "test.csv": ROWS, "test/1.png": b"of its texts"},
        {"train.csv": "image,labels\n1,cat\n2.png,dog\n", "train/1.png": b"", "train/2.png": b""},
        {"train.csv": "image,labels\n./test/1.png,cat\n", "test/1.png": b"", "test/2.png": b""},
        {"train.csv": ROWS, "test/metadata.csv": ROWS, "test/readme.txt": "about"},
        {"train.csv": ROWS, "test/.cache/1.txt": "", "validation/1.txt": ""},
        {"train/cat/1.png": jpeg(1), "train/dog/2.png": jpeg(2), "train/dog/2.txt": "caption"},
    ],
)
def test_files_that_belong_to_the_rows_are_no_other_form(
    files: dict[str, str | bytes], tmp_path: Path
) -> None:
    data_class(written(tmp_path / "d", files))


def test_folders_beside_the_folder_of_training_rows_are_on_the_card(tmp_path: Path) -> None:
    names = [*FOLDERS, "extra/3.png"]
    written(tmp_path / "d", {name: jpeg(k) for k, name in enumerate(names)})
    assert "not read: extra/" in read(tmp_path / "d").card.notes


@pytest.mark.parametrize(
    "beside",
    [
        {"train.zip": b"images", "test.tar.gz": b"images"},
        {"train.feather": b"a copy", "train.csv.gz": gzip.compress(b"x")},
    ],
)
def test_archives_of_images_and_copies_are_not_in_the_way(
    beside: dict[str, str | bytes], tmp_path: Path
) -> None:
    files: dict[str, str | bytes] = {"train.csv": TWO, **beside}
    if "train.csv.gz" in beside:
        with pytest.raises(UserError, match=r"train.csv or train.csv.gz"):
            read(written(tmp_path / "d", files))
    else:
        assert read(written(tmp_path / "d", files)).card.rows == {"train": 2}


@pytest.mark.parametrize(
    ("typed", "chosen"),
    [
        ("x[ab],xa", ["x[ab]", "xa"]),
        ("x[ab],q?", ["x[ab]", "q?"]),
        ("x[*,q?", ["x[ab]", "q?"]),
        ("x*", ["x[ab]", "xa", "xb"]),
        ("q?,*b", ["q?", "xb"]),
    ],
)
def test_only_a_star_stands_for_other_characters(
    typed: str, chosen: list[str], tmp_path: Path
) -> None:
    put(tmp_path / "d/train.csv", "text,x[ab],xa,xb,q?,qq\nw,1,0,0,1,0\nx,0,1,1,0,1\n")
    assert read(tmp_path / "d", label_column=typed).card.label_names == chosen


@pytest.mark.parametrize("place", ["Labels.txt", "LABELS.TXT", "labels.txt"])
@pytest.mark.parametrize("tables", ["", "data/"])
def test_names_of_labels_are_found_in_upper_case_and_beside_the_folder_data(
    place: str, tables: str, tmp_path: Path
) -> None:
    home = tmp_path / "d"
    written(home, {place: "cat\ndog\n", f"{tables}train.csv": "text,labels\nx,0\ny,1\n"})
    first = read(home).card
    assert first.label_names == ["cat", "dog"]
    put(home / place, "cat\nbird\n")
    assert read(home).card.label_names == ["cat", "bird"]


def test_values_that_spell_one_number_are_different_values(tmp_path: Path) -> None:
    values = ARFF.replace("x numeric", "x {1,01,1.0}").replace("0,1,3", "0,1,01\n1,1,1.0\n1,0,1")
    written(tmp_path / "d", {"m-train.arff": values.replace("1,0,2", "0,0,01"), "m.txt": ""})
    vectors = [x.tolist() for x in read(tmp_path / "d").inputs("train")]
    assert vectors == [[1], [1], [2], [0]]


def test_rows_that_are_not_used_are_on_the_card(tmp_path: Path) -> None:
    rows = "text,labels,split\nw,a,train\nx,b,train\ny,a,dev\nz,b,val\n"
    notes = read(written(tmp_path / "1", {"all.csv": rows})).card.notes
    assert "not used: 2 validation rows of column split; validation rows come from train" in notes
    files: dict[str, str | bytes] = {"train.csv": TWO, "val.csv": TWO, "train_more.csv": OTHER}
    notes = read(written(tmp_path / "2", files)).card.notes
    assert "not read: train_more.csv" in notes
    part = datasets.Dataset.from_dict({"text": ["x", "y"], "labels": [["a"], ["b"]]})
    splits = {"train": part, "validation": part, "test_matched": part}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "3"))
    assert "not read: test_matched" in read(tmp_path / "3").card.notes


def test_numbers_in_a_cell_may_have_spaces_around_their_marks(tmp_path: Path) -> None:
    put(tmp_path / "d/train.csv", 'vector,labels\n"[1 , 2 ,3]",a\n" 1  2   3 ",b\n"1 ;2; 3",c\n')
    assert np.array_equal(np.stack(list(read(tmp_path / "d").inputs("train"))), [[1, 2, 3]] * 3)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("train/Testing/3.png", "is train/Testing a label?"),
        ("train/val/3.png", "is train/val a label?"),
        ("train/dog/3.jfif", "train/dog/3.jfif: images of this format are not read"),
        ("train/dog/4.HEIC", "train/dog/4.HEIC: images of this format are not read"),
    ],
)
def test_images_of_labels_are_not_left_out(more: str, message: str, tmp_path: Path) -> None:
    written(tmp_path / "d", {name: jpeg(k) for k, name in enumerate([*FOLDERS, more])})
    with pytest.raises(UserError) as refused:
        read(tmp_path / "d")
    assert message in str(refused.value)


def test_folders_of_validation_rows_are_on_the_card(tmp_path: Path) -> None:
    for place in ("train/", ""):
        names = ("cat/1.png", "dog/2.png")
        files = {f"{place}{name}": jpeg(k) for k, name in enumerate(names)}
        written(tmp_path / f"d{place}", {**files, "val/cat/3.png": jpeg(3)})
        notes = read(tmp_path / f"d{place}").card.notes
        assert "val/ is not used: validation rows come from train" in notes


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["d.csv", "d.npz"])
def test_a_number_beyond_float32_is_a_bad_row_and_no_warning(name: str, tmp_path: Path) -> None:
    if name == "d.npz":
        np.savez(tmp_path / name, X=np.array([[1e39, 1], [2, 2]]), y=np.eye(2))
    else:
        put(tmp_path / name, "f1,f2,labels\n1e39,1,a\n2,2,b\n")
    with pytest.raises(UserError, match="is not a finite number"):
        read(tmp_path / name)


def test_a_file_that_is_no_image_is_named_without_an_address_in_memory(tmp_path: Path) -> None:
    put(tmp_path / "d/train.csv", "image,labels\na.jpg,x\n")
    put(tmp_path / "d/a.jpg", "<html>404</html>")
    with pytest.raises(
        UserError, match=r"image a.jpg cannot be read \(OSError: cannot identify it"
    ):
        read(tmp_path / "d")


@pytest.mark.parametrize("packing", [bz2, lzma, gzip], ids=["bz2", "xz", "gz"])
@pytest.mark.parametrize("behind", ["stream", "zeros", "damaged stream", "cut stream", "text"])
def test_rows_behind_the_first_stream_of_a_packed_file_are_not_left_out(
    packing: Any, behind: str, tmp_path: Path
) -> None:
    """Python takes what is no stream for the end of a bz2 or xz file."""
    first, second = packing.compress(b"text,labels\nx,a\n"), packing.compress(b"y,b\n")
    more = {
        "stream": second,
        "zeros": bytes(512),
        "damaged stream": b"?" + second[1:],
        "cut stream": second[:-3],
        "text": b"y,b\n",
    }[behind]
    ending = {bz2: "bz2", lzma: "xz", gzip: "gz"}[packing]
    put(tmp_path / f"d/train.csv.{ending}", first + more)
    if behind not in ("stream", "zeros"):
        with pytest.raises(UserError, match="cannot be unpacked"):
            read(tmp_path / "d")
        return
    task = read(tmp_path / "d")
    assert task.card.label_names == (["a", "b"] if behind == "stream" else ["a"])
