"""Inputs without labels, from files of a user: what `ssmlbench predict` reads, a row at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ssmlbench.core.errors import UserError
from ssmlbench.data.adapter import BadRow, numbered_lines
from ssmlbench.data.arrays import read_npy, read_npz
from ssmlbench.data.columns import ID_COLUMNS, IMAGE_COLUMNS, TEXT_COLUMNS, VECTOR_COLUMNS
from ssmlbench.data.images import eight_bit
from ssmlbench.data.records import TABLES, check_plain, read_records

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp")
ARRAY_ENDINGS = (".npy", ".npz")

PlainRow = tuple[str, Any]
"""An id and a raw input, as an encoder's `prepare` takes it."""


def plain_inputs(path: Path, kind: str, column: str | None = None) -> Iterator[PlainRow]:
    """The inputs in a file or a folder: texts, images or vectors, each with an id.

    A file: CSV, JSONL or Parquet with a column of inputs; texts also one a line (.txt), vectors also
    .npy and .npz. A folder: of images, of .txt files with a text each, or of the tables above.
    column: the name of the column of inputs; without it, the usual names are looked for.
    """
    path = path.expanduser()
    if not path.exists():
        raise UserError(f"--input {path}: no such file or folder")
    files = _files(path, kind)
    home = path if path.is_dir() else path.parent
    for file in files:
        yield from _rows_of(file, home, kind, column, whole_texts=path.is_dir())


def _files(path: Path, kind: str) -> list[Path]:
    endings = {
        "image": (*IMAGE_ENDINGS, *TABLES),
        "text": (".txt", *TABLES),
        "vector": (*ARRAY_ENDINGS, *TABLES),
    }[kind]
    if path.is_file():
        if path.suffix.lower() not in endings:
            raise UserError(f"--input {path}: expected a file that ends with {', '.join(endings)}")
        return [path]
    below = sorted(f for f in path.rglob("*") if f.is_file() and f.suffix.lower() in endings)
    single = [file for file in below if file.suffix.lower() not in TABLES]
    if not below:
        raise UserError(f"--input {path}: no file in it that ends with {', '.join(endings)}")
    return single or below  # a table beside images or texts describes them


def _rows_of(
    file: Path, home: Path, kind: str, column: str | None, whole_texts: bool
) -> Iterator[PlainRow]:
    ending, name = file.suffix.lower(), file.relative_to(home).as_posix()
    if ending in TABLES:
        yield from _table_rows(file, kind, column)
    elif ending in ARRAY_ENDINGS:
        yield from _array_rows(file)
    elif kind == "image":
        yield name, read_image(file)
    elif whole_texts:
        yield name, file.read_text(encoding="utf-8", errors="replace")
    else:
        for number, line in numbered_lines(file):
            yield str(number), line


def _table_rows(file: Path, kind: str, column: str | None) -> Iterator[PlainRow]:
    usual = {"text": TEXT_COLUMNS, "image": IMAGE_COLUMNS, "vector": VECTOR_COLUMNS}[kind]
    for number, record in read_records(file):
        if isinstance(record, BadRow):
            raise UserError(f"{file} line {number}: {record.reason}")
        chosen = column or next((c for c in usual if c in record), None)
        if chosen is None and kind == "vector":
            value: Any = [v for c, v in record.items() if c not in ID_COLUMNS]
        elif chosen is None or chosen not in record:
            raise UserError(
                f"{file}: no column {column or ' or '.join(usual)} (it has: {', '.join(record)}); "
                "name it with --column"
            )
        else:
            value = record[chosen]
        identity = next((record[c] for c in ID_COLUMNS if record.get(c) is not None), number)
        yield str(identity), _value(value, kind, file, number)


def _value(value: Any, kind: str, file: Path, number: int) -> Any:
    where = f"{file} line {number}"
    if kind == "text":
        if not isinstance(value, str):
            raise UserError(f"{where}: expected a text, found {value!r}")
        return value
    if kind == "vector":
        try:
            numbers = np.asarray(value, dtype=np.float32)
        except (TypeError, ValueError):
            raise UserError(f"{where}: expected numbers, found {str(value)[:60]!r}") from None
        if numbers.ndim != 1 or not np.isfinite(numbers).all():
            raise UserError(f"{where}: expected a list of finite numbers")
        return numbers
    if isinstance(value, dict):  # Hugging Face's own form of an image in Parquet
        value = value.get("bytes") or value.get("path")
    if isinstance(value, str) and value:
        return read_image(_inside(file.parent, value, where))
    if isinstance(value, bytes):
        return read_image(value, where)
    raise UserError(f"{where}: expected the path of an image, found {value!r}")


def _array_rows(file: Path) -> Iterator[PlainRow]:
    if file.suffix.lower() == ".npz":
        arrays = read_npz(file)
        names: list[str] = [name for name in ("X", "x", "features", "inputs") if name in arrays]
        names = names or (list(arrays) if len(arrays) == 1 else [])
        if not names:
            raise UserError(f"{file}: expected an array X (it has: {', '.join(arrays)})")
        loaded = arrays[names[0]]
    else:
        loaded = read_npy(file)
    if loaded.ndim != 2:
        raise UserError(f"{file}: expected rows × columns, found shape {loaded.shape}")
    for number, row in enumerate(loaded):
        yield str(number), _value(row, "vector", file, number)


def _inside(folder: Path, value: str, where: str) -> Path:
    """The file of an image, which must lie beside or below the table: it may be a stranger's."""
    file = folder / value
    try:
        inside = file.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # a zero byte, a loop of links
        raise UserError(f"{where}: image {value[:60]!r} is not a path") from None
    if not inside:
        raise UserError(
            f"{where}: image {value[:60]!r} is outside the folder of the table; move the table up, or "
            "name the folder of the images with --input"
        )
    return file


def read_image(source: Path | bytes, where: str = "") -> Any:
    """An image as an array, upright, as prepared data sets hand it out."""
    import io

    from PIL import Image, ImageOps

    if isinstance(source, Path):
        check_plain(source)
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            return np.asarray(ImageOps.exif_transpose(eight_bit(image)))
    except Exception as error:  # Pillow's decoders raise a dozen kinds
        named = where or str(source)
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(f"{named}: not an image that can be read ({reason})") from None
