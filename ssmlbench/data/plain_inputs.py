"""Inputs without labels, from files of a user: what `ssmlbench predict` reads, a row at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ssmlbench.core.counts import and_more
from ssmlbench.core.data_options import DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.core.paths import from_home, paths_below
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.core.whole_numbers import whole_number
from ssmlbench.data.adapter import BadRow, InputColumns, Kind, numbered_lines
from ssmlbench.data.arff import ArffTable
from ssmlbench.data.arrays import read_npy, read_npz
from ssmlbench.data.columns import (
    ID_COLUMNS,
    IMAGE_COLUMNS,
    LABEL_COLUMNS,
    SPLIT_COLUMNS,
    TEXT_COLUMNS,
    VECTOR_COLUMNS,
    Roles,
    names_texts,
)
from ssmlbench.data.hugging_face import is_saved, saved_tables
from ssmlbench.data.images import eight_bit, undecoded, upright
from ssmlbench.data.libsvm import SUFFIXES, read_lines
from ssmlbench.data.media import IMAGE_ENDINGS, read_text, unread_images
from ssmlbench.data.plain_numbers import is_number
from ssmlbench.data.records import TABLES, Table
from ssmlbench.data.row_checks import text_fault
from ssmlbench.data.table_rows import RowReader
from ssmlbench.data.text_files import check_plain, file_ending
from ssmlbench.data.unnamed_columns import INDEX_COLUMNS
from ssmlbench.data.unread import unread_hint, unread_name

ARRAY_ENDINGS = (".npy", ".npz")

PlainRow = tuple[str, Any]
"""An id and a raw input, as an encoder's `prepare` takes it."""


def plain_inputs(
    path: Path, kind: Kind, column: str | None = None, learnt: InputColumns | None = None
) -> Iterator[PlainRow]:
    """The inputs in a file or a folder: texts, images or vectors, each with an id.

    A file: CSV, JSONL or Parquet with a column of inputs; texts also one per line (.txt), vectors also
    .npy, .npz, ARFF and LIBSVM. A folder: of images, of .txt files with a text each, of the tables
    above, or one of Hugging Face's `save_to_disk`.
    column: the name of the column of inputs; without it, that of the data that the model learnt from
    or the usual names. Vectors whose numbers are in columns of their own are matched by name.
    """
    path, learnt = check_input(path), learnt or InputColumns()
    home = path if path.is_dir() else path.parent
    if path.is_dir() and is_saved(path):
        for table in saved_tables(path):
            yield from _table_rows(table, home, kind, column, learnt)
        return
    for file in input_files(path, kind):
        yield from _rows_of(file, home, kind, column, learnt, whole_texts=path.is_dir())


def check_input(path: Path) -> Path:
    """The path without `~`; a UserError if there is no file or folder."""
    if not (path := from_home(path)).exists():
        raise UserError(f"--input {path}: no such file or folder")
    if not path.is_file() and not path.is_dir():
        raise UserError(f"--input {path} is a device or a pipe; name a file or a folder")
    return path


def input_files(path: Path, kind: Kind) -> list[Path]:
    """The files that inputs of a kind are read from; of a folder of `save_to_disk` none."""
    path = from_home(path)
    if path.is_dir() and is_saved(path):
        return []
    endings = {
        "image": (*IMAGE_ENDINGS, *TABLES),
        "text": (".txt", *TABLES),
        "vector": (*ARRAY_ENDINGS, ".arff", *SUFFIXES, *TABLES),
    }[kind]
    if path.is_file():
        if file_ending(path) not in endings:
            hint = unread_hint(path)
            raise UserError(
                f"--input {path}: expected a file that ends with {', '.join(endings)}{hint}"
            )
        return [path]
    there = sorted(file for file in paths_below(path) if file.is_file())
    below = [file for file in there if file_ending(file) in endings]
    tables = [file for file in below if file_ending(file) in TABLES]
    single = [file for file in below if file not in tables]
    if not below:
        raise UserError(f"--input {path}: no file in it that ends with {', '.join(endings)}")
    if kind == "vector" and single and tables:
        raise UserError(
            f"--input {path}: rows are in {single[0].name} and in {tables[0].name}; name the file to read"
        )
    unread = unread_images(path) if kind == "image" and single else []
    unread += [] if single and kind != "vector" else filter(unread_name, there)
    if unread:
        raise UserError(
            f"--input {path}: {unread[0].name} is of a format that is not read{unread_hint(unread[0])}; or "
            "move it away"
        )
    return single or below  # a table beside images or texts describes them


def _rows_of(
    file: Path,
    home: Path,
    kind: Kind,
    column: str | None,
    learnt: InputColumns,
    whole_texts: bool,
) -> Iterator[PlainRow]:
    ending, name = file_ending(file), file.relative_to(home).as_posix()
    if ending in TABLES:
        yield from _table_rows(TABLES[ending](file), file.parent, kind, column, learnt)
    elif ending == ".arff":
        table = ArffTable(file, learnt.inputs)
        yield from _table_rows(table, file.parent, kind, column, learnt)
    elif ending in SUFFIXES:
        yield from _sparse_rows(file, learnt.inputs)
    elif ending in ARRAY_ENDINGS:
        yield from _array_rows(file)
    elif kind == "image":
        yield name, read_image(file)
    elif whole_texts:
        check_plain(file)
        yield name, _raw(read_text(file), "text", str(file))
    else:
        check_plain(file)
        for number, line in numbered_lines(file):
            yield str(number), _raw(line, "text", f"{file} line {number}")


def _table_rows(
    table: Table, folder: Path, kind: Kind, column: str | None, learnt: InputColumns
) -> Iterator[PlainRow]:
    """The rows of a table, read as `prepare` reads them."""
    if file_ending(table.file) in TABLES:
        check_plain(table.file)
    inputs = _input_columns(table, kind, column, learnt)
    ids = [name for name in (learnt.id, *ID_COLUMNS) if name and name in table.columns]
    in_files = kind == "text" and names_texts(table, inputs[0])
    roles = Roles(kind, tuple(inputs), "", (), ids[0] if ids else "", in_files=in_files)
    reader = RowReader(roles, DataOptions(), (), False, False, list(table.columns), folder)
    for number, record in table.records():
        where = f"{table.file.parent / table.where(number)}"
        if isinstance(record, BadRow):
            raise UserError(f"{where}: {record.reason}")
        value = reader.input(record)
        if isinstance(value, BadRow):
            raise UserError(f"{where}: {value.reason}")
        found = record.get(roles.id) if roles.id else None
        id_ = reader.path_of(record) or number if found is None else found
        yield str(id_), _raw(value, kind, where)


def _input_columns(
    table: Table, kind: Kind, column: str | None, learnt: InputColumns
) -> Sequence[str]:
    """The columns of the inputs: as named, as the model learnt from, or by their usual names."""
    there = table.columns
    if learnt.coded:
        raise UserError(
            f"{table.file}: in the data that the model learnt from, {learnt.coded[0]!r} has numbers and "
            "words as values, and its numbers were read as their places; new rows cannot be read alike"
        )
    usual = {"text": TEXT_COLUMNS, "image": IMAGE_COLUMNS, "vector": VECTOR_COLUMNS}[kind]
    if column is None and len(learnt.inputs) > 1:
        return _matched(table, learnt)
    named = [column] if column else [*learnt.inputs, *usual]
    if found := next((name for name in named if name in there), None):
        return [found]
    if kind == "vector" and column is None:  # a model that knows no names
        numbers = [name for name in there if name not in (*ID_COLUMNS, *INDEX_COLUMNS)]
        _check_header(table, numbers)
        if numbers or not there:
            return numbers
    raise UserError(
        f"{table.file}: no column {' or '.join(dict.fromkeys(named))} (it has: {', '.join(there)}); "
        "name it with --column"
    )


def _check_header(table: Table, names: Sequence[str]) -> None:
    """Raise a UserError if the names of the columns seem to be the numbers of a first row."""
    counted = [[str(k + start) for k in range(len(names))] for start in (0, 1)]
    if names and all(map(is_number, names)) and list(names) not in counted:
        raise UserError(
            f"{table.file}: its first line should name the columns, and has numbers ({names[0]}…)"
        )


def _matched(table: Table, learnt: InputColumns) -> Sequence[str]:
    """The columns that the model learnt from; a UserError if one is missing or is not one of them."""
    missing = [name for name in learnt.inputs if name not in table.columns]
    if missing and table.columns:
        hint = did_you_mean(missing[0], table.columns)
        raise UserError(
            f"{table.file}: no column {missing[0]!r}{and_more(missing, 1)}, which the model learnt "
            f"from.{hint}"
        )
    known = {
        *learnt.all,
        *learnt.inputs,
        *ID_COLUMNS,
        *SPLIT_COLUMNS,
        *LABEL_COLUMNS,
        *INDEX_COLUMNS,
    }
    extra = [name for name in table.columns if name not in known]
    if extra:
        raise UserError(
            f"{table.file}: column {extra[0]!r}{and_more(extra, 1)}, which the data that the model "
            "learnt from had not; leave it out"
        )
    return learnt.inputs


def _raw(value: Any, kind: Kind, where: str) -> Any:
    """An input as an encoder takes it."""
    if kind == "vector" and not np.isfinite(value).all():
        raise UserError(f"{where}: expected finite numbers")
    if kind == "image":
        return read_image(value, where)
    if kind == "text":
        fault = value.reason if isinstance(value, BadRow) else text_fault(value)
        if fault:
            raise UserError(f"{where}: {fault}")
    return value


def _sparse_rows(file: Path, numbers: Sequence[str]) -> Iterator[PlainRow]:
    """The rows of a LIBSVM file; numbers: of the features that the model learnt from."""
    place = {
        number: k for k, text in enumerate(numbers) if (number := whole_number(text)) is not None
    }
    if not place:
        raise UserError(
            f"{file}: the model did not learn from LIBSVM files; give it the columns that it knows"
        )
    for number, row in read_lines(file):
        where = f"{file} line {number}"
        if isinstance(row, BadRow):
            raise UserError(f"{where}: {row.reason}")
        vector = np.zeros(len(numbers), dtype=np.float32)
        for index, value in row.values.items():
            if index not in place:
                raise UserError(
                    f"{where}: feature {index} was in no row that the model learnt from"
                )
            vector[place[index]] = value
        yield str(number), _raw(vector, "vector", where)


def _array_rows(file: Path) -> Iterator[PlainRow]:
    if file.suffix.lower() == ".npz":
        arrays = read_npz(file)
        names: list[str] = [name for name in ("X", "x", "features", "inputs") if name in arrays]
        names = names or (list(arrays) if len(arrays) == 1 else [])
        if len(names) != 1:
            raise UserError(f"{file}: expected one array X (it has: {', '.join(arrays)})")
        loaded = arrays[names[0]]
    else:
        loaded = read_npy(file)
    if loaded.ndim != 2:
        raise UserError(f"{file}: expected rows × columns, found shape {loaded.shape}")
    for number, row in enumerate(loaded):
        yield str(number), _array_row(row, f"{file} row {number}")


def _array_row(row: Any, where: str) -> Any:
    if row.dtype.kind not in "biuf":
        raise UserError(f"{where}: expected numbers, found {row.dtype}")
    return _raw(np.asarray(row, dtype=np.float32), "vector", where)


def read_image(source: Path | bytes, where: str = "") -> Any:
    """An image as an array, upright, as prepared data sets hand it out."""
    if isinstance(source, Path):
        check_plain(source)
    try:
        # Read as bytes, as `prepare` does. If Pillow opens a path, it maps some TIFF files into memory and
        # forgets their orientation.
        content = source.read_bytes() if isinstance(source, Path) else source
        with undecoded(content) as image:
            image.load()
            return np.asarray(eight_bit(upright(image)))
    except Exception as error:  # Pillow's decoders raise a dozen kinds
        named = where or str(source)
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(f"{named}: not an image that can be read ({reason})") from None
