"""Files with random content are read as independent readers read them, or refused.

SciPy for ARFF, scikit-learn for LIBSVM, pandas for tables, Pillow and NumPy for images.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.data.adapter import BadRow, Row
from ssmlbench.data.images import as_stored, opened
from ssmlbench.data.plain_inputs import read_image
from ssmlbench.data.records import read_records
from ssmlbench.data.user_data import data_class

few = settings(
    max_examples=30, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
numbers = st.floats(-1e6, 1e6, width=32)
names = st.text("abc xyz,'\"%{}\\é@?-_", min_size=1, max_size=6).map(str.strip).filter(bool)


def rows_of(path: Path, **options: Any) -> tuple[list[str], list[Row | BadRow]]:
    adapter = data_class(DataAddress(str(path), DataOptions(**options)))()
    return adapter.label_names(), list(adapter.rows("train"))


def vectors(rows: list[Row | BadRow]) -> np.ndarray:
    assert not [row for row in rows if isinstance(row, BadRow)]
    return np.array([row.input for row in rows if isinstance(row, Row)])


def flags(rows: list[Row | BadRow], count: int) -> np.ndarray:
    """Rows × labels; -1 where a label is unknown."""
    matrix = np.zeros((len(rows), count), dtype=int)
    for n, row in enumerate(rows):
        assert isinstance(row, Row)
        matrix[n, list(row.labels or ())] = 1
        matrix[n, list(row.unknown) if row.labels is not None else slice(None)] = -1
    return matrix


# ------------------------------------------------------------------------------------------- ARFF


def quoted(name: str, mark: str = "'") -> str:
    return mark + name.replace("\\", "\\\\").replace(mark, f"\\{mark}") + mark


@st.composite
def arff(draw: Any) -> tuple[str, list[str], np.ndarray, np.ndarray]:
    """A file; the names of its labels; its features and labels."""
    width, height = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    kinds = draw(
        st.lists(st.sampled_from(["number", "words", "01"]), min_size=width, max_size=width)
    )
    columns = draw(st.lists(names, min_size=width + 2, max_size=width + 2, unique=True))
    domains = {k: draw(st.lists(names, min_size=2, max_size=4, unique=True)) for k in range(width)}
    flipped = draw(st.booleans())
    lines = ["@relation x", "% a comment", ""]
    for k, kind in enumerate(kinds):
        mark = draw(st.sampled_from("'\""))
        listed = ",".join(quoted(value, mark) for value in domains[k])
        domain = {"number": "NUMERIC", "words": f"{{{listed}}}", "01": "{0, 1}"}[kind]
        lines.append(f"@ATTRIBUTE {quoted(columns[k], mark)} {domain}")
    zero_one = "{1,0}" if flipped else "{0,1}"
    lines += [f"@attribute {quoted(name)} {zero_one}" for name in columns[width:]]
    lines.append("@data")
    features, labels = np.zeros((height, width), np.float32), np.zeros((height, 2), int)
    for n in range(height):
        cells = []
        for k, kind in enumerate(kinds):
            value = draw(numbers if kind == "number" else st.integers(0, 1))
            features[n, k] = value
            cells.append(quoted(domains[k][value]) if kind == "words" else repr(value))
        labels[n] = draw(st.tuples(st.integers(0, 1), st.integers(0, 1)))
        cells += map(str, labels[n])
        if draw(st.booleans()):
            lines.append(draw(st.sampled_from([",", ", ", " ,\t"])).join(cells))
            continue
        absent = [*(features[n] == 0), *(labels[n] == (1 if flipped else 0))]
        left = [f"{k} {cell}" for k, cell in enumerate(cells) if not absent[k]]
        lines.append("{" + ", ".join(left) + "}")
    return "\n".join(lines) + "\n", columns[width:], features, labels


@few
@given(arff())
def test_an_arff_file_is_read_as_it_was_written(
    tmp_path: Path, made: tuple[str, list[str], np.ndarray, np.ndarray]
) -> None:
    text, labels, features, truth = made
    from xml.sax.saxutils import quoteattr

    (tmp_path / "toy.arff").write_text(text)
    listed = "".join(f"<label name={quoteattr(name)}/>" for name in labels)
    (tmp_path / "toy.xml").write_text(f"<labels>{listed}</labels>")
    found, rows = rows_of(tmp_path / "toy.arff")
    assert found == labels
    assert np.array_equal(vectors(rows), features)
    assert np.array_equal(flags(rows, 2), truth)


@few
@given(st.lists(st.tuples(numbers, numbers, st.integers(0, 1)), min_size=1, max_size=6))
def test_arff_agrees_with_scipy(tmp_path: Path, table: list[tuple[float, float, int]]) -> None:
    from scipy.io import arff as scipy_arff

    lines = [",".join(map(repr, row)) for row in table]
    head = (
        "@relation 'x: -C -1'\n@attribute a numeric\n@attribute b real\n@attribute l {0,1}\n@data\n"
    )
    (tmp_path / "toy.arff").write_text(head + "\n".join(lines) + "\n")
    theirs, _ = scipy_arff.loadarff(tmp_path / "toy.arff")
    _, rows = rows_of(tmp_path / "toy.arff")
    assert np.array_equal(vectors(rows), np.array([theirs["a"], theirs["b"]], np.float32).T)
    assert flags(rows, 1)[:, 0].tolist() == theirs["l"].astype(int).tolist()


def arff_with(tmp_path: Path, attributes: str, rows: str) -> Path:
    lines = "".join(f"@attribute {attribute}\n" for attribute in attributes.split("; "))
    (tmp_path / "toy.arff").write_text(f"@relation x\n{lines}@data\n{rows}\n")
    (tmp_path / "toy.xml").write_text('<labels><label name="l"/></labels>')
    return tmp_path / "toy.arff"


@pytest.mark.parametrize("values", ["yes,no", "no,yes", "TRUE,FALSE", "False,True", "1,0", "0,1"])
def test_the_order_of_a_labels_values_does_not_matter(tmp_path: Path, values: str) -> None:
    first, second = values.split(",")
    path = arff_with(tmp_path, f"l {{{values}}}; f numeric", f"{first},1\n{second},2")
    positive = [value.lower() in ("yes", "true", "1") for value in (first, second)]
    assert flags(rows_of(path)[1], 1)[:, 0].tolist() == positive


@pytest.mark.parametrize("values", ["a,b", "x,0,1", "0,1,maybe", "-1,1"])
def test_a_label_of_other_words_is_refused(tmp_path: Path, values: str) -> None:
    path = arff_with(tmp_path, f"l {{{values}}}; f numeric", f"{values.split(',')[1]},1")
    with pytest.raises(UserError, match="write 0 for a negative label"):
        rows_of(path)


def test_numbers_of_minus_one_and_one_are_no_labels_before_the_user_says_what_they_are(
    tmp_path: Path,
) -> None:
    path = arff_with(tmp_path, "l numeric; f numeric", "-1,1\n1,2")
    with pytest.raises(UserError, match="--empty-labels"):
        rows_of(path)
    assert flags(rows_of(path, empty_labels="none")[1], 1)[:, 0].tolist() == [0, 1]
    assert flags(rows_of(path, empty_labels="unknown")[1], 1)[:, 0].tolist() == [-1, 1]


def test_a_second_attribute_with_the_name_of_a_label_is_refused(tmp_path: Path) -> None:
    path = arff_with(tmp_path, "l {0,1}; f numeric; l {0,1}", "1,2,0")
    with pytest.raises(UserError, match="two attributes are called 'l'"):
        rows_of(path)


@few
@given(st.lists(names | st.integers(-3, 9).map(str), min_size=2, max_size=6, unique=True))
def test_different_nominal_values_have_different_codes(tmp_path: Path, values: list[str]) -> None:
    domain = ",".join(map(quoted, values))
    path = arff_with(
        tmp_path, f"l {{0,1}}; f {{{domain}}}", "\n".join(f"1,{quoted(value)}" for value in values)
    )
    codes = vectors(rows_of(path)[1])[:, 0]
    assert len(set(codes)) == len(values)
    if all(value.removeprefix("-").isdecimal() for value in values):
        assert codes.tolist() == [float(value) for value in values]


def test_a_nominal_value_may_have_quotes_of_its_own(tmp_path: Path) -> None:
    path = arff_with(tmp_path, """l {0,1}; f {'"a"','b'}""", "{0 1}\n1,'b'\n1,'\"a\"'")
    assert vectors(rows_of(path)[1])[:, 0].tolist() == [0, 1, 0]


def test_a_sparse_row_that_names_an_attribute_twice_is_bad(tmp_path: Path) -> None:
    (row,) = rows_of(arff_with(tmp_path, "l {0,1}; f numeric", "{0 1, 1 2, 1 3}"))[1]
    assert isinstance(row, BadRow)
    assert "twice" in row.reason


# ----------------------------------------------------------------------------------------- LIBSVM


@few
@given(
    st.lists(
        st.tuples(
            st.sets(st.integers(0, 9), min_size=1, max_size=3),
            st.dictionaries(st.integers(0, 12), numbers, max_size=4),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_libsvm_agrees_with_scikit_learn(
    tmp_path: Path, table: list[tuple[set[int], dict[int, float]]]
) -> None:
    from sklearn.datasets import load_svmlight_file

    table = [*table, ({0}, {12: 1.0})]  # no column is empty at the end
    lines = []
    for labels, values in table:
        pairs = " ".join(f"{k}:{values[k]!r}" for k in sorted(values))
        lines.append(f"{','.join(map(str, sorted(labels)))} {pairs} # a comment")
    (tmp_path / "toy.svm").write_text("\n".join(lines) + "\n")
    theirs, targets = load_svmlight_file(str(tmp_path / "toy.svm"), multilabel=True)
    found, rows = rows_of(tmp_path / "toy.svm")
    assert np.array_equal(vectors(rows), theirs.toarray().astype(np.float32))
    ours = [{int(found[k]) for k in row.labels or ()} for row in rows if isinstance(row, Row)]
    assert ours == [set(map(int, target)) for target in targets]


# ----------------------------------------------------------------------------------------- tables

cells = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n\",;\t'#\\ "), max_size=8
)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".json", ".parquet"])
@few
@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=5))
def test_a_table_of_pandas_is_read_as_it_was_written(
    tmp_path: Path, ending: str, table: list[tuple[str, str]]
) -> None:
    frame, file = pd.DataFrame(table, columns=["text", "a b"]), tmp_path / f"t{ending}"
    if ending in (".csv", ".tsv"):
        frame.to_csv(file, index=False, sep="," if ending == ".csv" else "\t")
    elif ending == ".parquet":
        frame.to_parquet(file)
    else:
        frame.to_json(file, orient="records", lines=ending == ".jsonl")
    records = [record for _, record in read_records(file)]
    assert records == frame.to_dict("records")


@few
@given(st.text('ab,"\n', max_size=24), st.sampled_from([",", "\t"]))
def test_quotes_are_read_as_pandas_reads_them_or_refused(
    tmp_path: Path, text: str, mark: str
) -> None:
    """Where a quote is out of place, pandas guesses; here the rows are bad, and none is lost."""
    file = tmp_path / ("t.csv" if mark == "," else "t.tsv")
    file.write_text(f"x,y\n{text}\n".replace(",", mark), newline="")
    try:
        records = [record for _, record in read_records(file)]
    except UserError as refused:
        assert "quotes" in str(refused)  # noqa: PT017
        return
    if any(isinstance(record, BadRow) for record in records):
        return
    theirs = pd.read_csv(file, sep=mark, dtype=str, keep_default_na=False)
    assert records == theirs.to_dict("records")


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_a_quote_that_is_never_closed_does_not_take_the_rows_after_it(
    tmp_path: Path, ending: str
) -> None:
    text = 'text,labels\na,x\nb,"y\nc,x\nd,y\n'.replace(",", "," if ending == "csv" else "\t")
    (tmp_path / f"t.{ending}").write_text(text)
    with pytest.raises(UserError, match="lines 3 to 5"):
        list(read_records(tmp_path / f"t.{ending}"))


def test_a_number_with_underscores_is_none(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,labels\n1,2,x\n1_000,2,y\n")
    _, (good, bad) = rows_of(tmp_path / "t.csv")
    assert isinstance(good, Row)
    assert isinstance(bad, BadRow)


label_lists = st.lists(st.text("abc ,;'\"\\[](){}é", max_size=5).map(str.strip), max_size=4)


@few
@given(label_lists)
def test_a_list_of_labels_in_a_cell_is_the_list(tmp_path: Path, labels: list[str]) -> None:
    """As JSON, and as Python and NumPy print it; names of no character are left out."""
    from ssmlbench.data.label_cells import label_values

    expected = [label for label in labels if label]
    printed = [json.dumps(labels), json.dumps(labels, ensure_ascii=False), str(labels)]
    if labels:
        printed.append(str(np.array(labels)).replace("\n", " "))
        printed.append(str(tuple(labels)))
    for text in printed:
        assert label_values(text, "", "none", "here") == expected, text


# ----------------------------------------------------------------------------------------- images

TURNS: dict[int, Any] = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a, 1),
}
"""EXIF orientation → how its pixels are turned."""


@pytest.mark.parametrize(
    "kind", ["RGB", "L", "RGBA", "LA", "P", "1", "16-bit", "transparent colour"]
)
@pytest.mark.parametrize("format_", ["PNG", "WEBP", "TIFF", "JPEG"])
def test_every_kind_of_image_is_turned_upright(kind: str, format_: str) -> None:
    draw = np.random.default_rng(3)
    colours = draw.integers(0, 256, (8, 16, 3), dtype=np.uint8)
    alpha = draw.integers(0, 256, (8, 16, 1), dtype=np.uint8)
    image = {
        "L": lambda: Image.fromarray(colours[..., 0]),
        "RGBA": lambda: Image.fromarray(np.dstack([colours, alpha])),
        "LA": lambda: Image.fromarray(np.dstack([colours[..., :1], alpha])),
        "P": lambda: Image.fromarray(colours).quantize(16),
        "1": lambda: Image.fromarray(colours[..., 0] > 128),
        "16-bit": lambda: Image.fromarray(draw.integers(0, 65536, (8, 16), dtype=np.uint16)),
    }.get(kind, lambda: Image.fromarray(colours))()
    more: dict[str, Any] = {"lossless": True} if format_ == "WEBP" else {}
    if kind == "transparent colour":
        more["transparency"] = tuple(colours[0, 0].tolist())
    contents = {}
    for orientation in TURNS:
        exif = Image.Exif()
        exif[0x0112] = orientation
        out = io.BytesIO()
        try:
            image.save(out, format_, exif=exif, **more)
        except (OSError, ValueError, TypeError):
            pytest.skip(f"{format_} has no such images")
        contents[orientation] = out.getvalue()
    upright = pixels(contents[1])
    for orientation, content in contents.items():
        turned = TURNS[orientation](upright)
        assert np.array_equal(pixels(content), turned), orientation
        assert np.array_equal(read_image(content), turned), orientation


def pixels(content: bytes) -> np.ndarray:
    return np.asarray(opened(as_stored(content)[0]))
