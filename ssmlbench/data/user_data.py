"""One's own data without Python: a folder of CSV, JSONL or Parquet files, one set of files a split.

A row has a text or an image, and its labels: a list of names, a list of ids, or 0/1 columns.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from ssmlbench.core.errors import UserError
from ssmlbench.data.adapter import SPLITS, BadRow, DatasetAdapter, Row, numbered_lines

FORMATS = (".csv", ".jsonl", ".parquet")
TEXT_COLUMNS = ("text", "sentence", "document")
IMAGE_COLUMNS = ("image", "image_path", "file_name", "path")
ID_COLUMNS = ("id", "uid", "doc_id")
TRANSLATION_COLUMN = "back_translation"
LABEL_COLUMNS = ("labels", "label")
LAYOUT = """
train.csv, .jsonl or .parquet   (or several: train-0.parquet, train-1.parquet)
test.csv, .jsonl or .parquet
labels.txt                      optional: one label a line; fixes the labels and their order
with the columns
  text                          or `image`: a path, seen from this folder
  labels                        a list of names or of ids (in CSV a JSON list, or a;b;c);
                                or, instead, one column of 0 and 1 per label
  id                            optional
  back_translation              optional, in train: the text, translated and back (a strong view)
"""

Record = Mapping[str, Any]


def data_class(path: Path) -> type[DatasetAdapter]:
    """The adapter of a folder of tables, or of a Mulan ARFF file."""
    from ssmlbench.data.arff import ArffData

    path = path.expanduser().resolve()
    if path.suffix != ".arff" and not path.is_dir():
        raise UserError(
            f"--dataset {path}: no such folder; expected one with train and test files (CSV, JSONL "
            "or Parquet), or a Mulan file NAME.arff"
        )
    base = ArffData if path.suffix == ".arff" else FolderData
    return base.at(path)


def looks_like_path(text: str) -> bool:
    """Is what was typed for a data set a path? (`./mine` is one, `mine` is a name.)"""
    return "/" in text or "\\" in text or text.endswith(".arff") or Path(text).is_dir()


def safe_name(path: Path) -> str:
    """A data set's name from its path: it names a results folder too."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.name).strip("-.")
    if not name:
        raise UserError(f"--dataset {path}: cannot make a name of it; rename the folder")
    return name


def files_digest(files: list[Path]) -> str:
    """Changes when a file is edited or another one is meant; contents are not read."""
    facts = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:8]


class FolderData(DatasetAdapter):
    """The files of a user's folder. Made by `data_class`, not by name."""

    layout = LAYOUT
    home: ClassVar[Path]

    @classmethod
    def at(cls, folder: Path) -> type[DatasetAdapter]:
        found = {split: split_files(folder, split) for split in SPLITS}
        absent = [split for split in SPLITS if not found[split]]
        if absent:
            raise UserError(
                f"--dataset {folder}: no {' and no '.join(absent)} file in it; it should look like"
                + LAYOUT.replace("\n", "\n    ").rstrip()
            )
        first = next(iter(read_records(found["train"][0])), None)
        columns = set(first[1]) if first and not isinstance(first[1], BadRow) else set()
        kind = "text" if columns & set(TEXT_COLUMNS) else "image"
        if not columns & {*TEXT_COLUMNS, *IMAGE_COLUMNS}:
            raise UserError(
                f"--dataset {folder}: {found['train'][0].name} has no text or image column "
                f"(it has: {', '.join(sorted(columns)) or 'no readable first row'}); call it "
                "`text` or `image`"
            )
        backbone = "bert-base-uncased" if kind == "text" else "resnet50"
        fields = {"name": safe_name(folder), "kind": kind, "backbone": backbone, "home": folder}
        translated = kind == "text" and TRANSLATION_COLUMN in columns
        return type("OwnFolder", (cls,), {**fields, "back_translated": translated})

    def __init__(self, source: Path | None = None, data_dir: Path | None = None):
        super().__init__(source or self.home, data_dir)

    def files(self, split: str) -> list[Path]:
        assert self.folder is not None
        return split_files(self.folder, split)

    def source_key(self) -> str:
        return files_digest([file for split in SPLITS for file in self.files(split)])

    def card_notes(self) -> list[str]:
        notes = []
        for split in ("validation", "valid", "val", "dev"):
            assert self.folder is not None
            if files := split_files(self.folder, split):
                notes.append(f"{files[0].name} is not used: validation rows come from train")
        return notes

    @cached_property
    def _columns(self) -> list[str]:
        """The 0/1 columns; empty when there is a label column."""
        first = next(
            (r for _, r in read_records(self.files("train")[0]) if isinstance(r, dict)), {}
        )
        if any(name in first for name in LABEL_COLUMNS):
            return []
        known = {*TEXT_COLUMNS, *IMAGE_COLUMNS, *ID_COLUMNS, TRANSLATION_COLUMN}
        if self.has("labels.txt"):
            return [name for name in self._listed if name in first]
        return [c for c in first if c not in known and str(first[c]).lower() in ZERO_ONE]

    @cached_property
    def _listed(self) -> list[str]:
        return [line.strip() for _, line in numbered_lines(self.path("labels.txt")) if line.strip()]

    def label_names(self) -> list[str]:
        return self._names

    @cached_property
    def _names(self) -> list[str]:
        if self._columns:
            return self._columns
        if self.has("labels.txt"):
            return self._listed
        found: set[Any] = set()
        for split in SPLITS:
            for file in self.files(split):
                for _, record in read_records(file, columns=LABEL_COLUMNS):
                    if isinstance(record, dict):
                        values = label_values(record)
                        found.update(values if isinstance(values, list) else ())
        if not found:
            raise UserError(
                f"data set {self.name}: no labels found in {self.files('train')[0].name}; it needs "
                "a `labels` column with a list, or a column of 0 and 1 per label"
            )
        if all(value.isdecimal() for value in found):
            return sorted(found, key=int)
        return sorted(found)

    def rows(self, split: str) -> Iterator[Row | BadRow]:
        positions = {name: k for k, name in enumerate(self._names)}
        by_position = self.has("labels.txt")
        for file in self.files(split):
            for number, record in read_records(file):
                where = self.where(file, number)
                if isinstance(record, BadRow):
                    yield BadRow(where, record.reason)
                    continue
                labels = self._labels(record, positions, by_position, where)
                if isinstance(labels, BadRow):
                    yield labels
                    continue
                value = self._input(record)
                if value is None:
                    yield BadRow(where, f"no {self.kind} in it")
                    continue
                identity = first_of(record, ID_COLUMNS)
                translation = record.get(TRANSLATION_COLUMN) if self.back_translated else None
                yield Row(
                    value,
                    labels,
                    "" if identity is None else str(identity),
                    where,
                    translation if isinstance(translation, str) and split == "train" else "",
                )

    def _labels(
        self, record: Record, positions: dict[str, int], by_position: bool, where: str
    ) -> tuple[int, ...] | BadRow:
        if self._columns:
            chosen = []
            for k, name in enumerate(self._columns):
                flag = ZERO_ONE.get(str(record.get(name)).lower())
                if flag is None:
                    found = record.get(name)
                    return BadRow(where, f"column {name}: expected 0 or 1, found {found!r}")
                if flag:
                    chosen.append(k)
            return tuple(chosen)
        values = label_values(record)
        if isinstance(values, BadRow):
            return BadRow(where, values.reason)
        chosen = []
        for value in values:
            if value in positions:
                chosen.append(positions[value])
            elif by_position and value.isdecimal() and int(value) < len(positions):
                chosen.append(int(value))
            else:
                return BadRow(where, f"unknown label {value!r}", "unknown label")
        return tuple(chosen)

    def _input(self, record: Record) -> Any:
        if self.kind == "text":
            value = first_of(record, TEXT_COLUMNS)
            return value if isinstance(value, str) else None
        value = first_of(record, IMAGE_COLUMNS)
        if isinstance(value, dict):  # Hugging Face's own form of an image in Parquet
            value = value.get("bytes") or value.get("path")
        if isinstance(value, str) and value:
            assert self.folder is not None
            return self.folder / value
        return value if isinstance(value, bytes) else None


ZERO_ONE = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}


def split_files(folder: Path, split: str) -> list[Path]:
    """`train.csv`, or shards such as `train-00000-of-00002.parquet`, in order."""
    return sorted(
        file
        for file in folder.glob(f"{split}*")
        if file.suffix in FORMATS and re.fullmatch(rf"{split}([-_.]\d.*)?", file.stem)
    )


def first_of(record: Record, columns: tuple[str, ...]) -> Any:
    return next((record[c] for c in columns if record.get(c) is not None), None)


def label_values(record: Record) -> list[str] | BadRow:
    """The labels of a row as texts: from a list, a JSON list, or a text joined by ; | or ,"""
    value = first_of(record, LABEL_COLUMNS)
    if value is None:
        return BadRow("", "no labels in it")
    if isinstance(value, str) and value.strip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return BadRow("", f"labels {value[:40]!r} are not a JSON list")
    if isinstance(value, str):
        value = re.split(r"[;|,]", value)
    if isinstance(value, int):
        value = [value]
    if not isinstance(value, list) or any(not isinstance(v, str | int) for v in value):
        return BadRow("", f"labels {str(value)[:40]!r} are not a list of names or ids")
    return [text for v in value if (text := str(v).strip())]


def read_records(
    file: Path, columns: tuple[str, ...] | None = None
) -> Iterator[tuple[int, dict[str, Any] | BadRow]]:
    """(line, record) of a table, streamed; in Parquet and in JSON lists the line is the row.

    columns: only these are needed, which spares Parquet the reading of the others.
    """
    if file.suffix == ".csv":
        return _read_csv(file)
    if file.suffix == ".json":
        return _read_json(file)
    return _read_jsonl(file) if file.suffix == ".jsonl" else _read_parquet(file, columns)


def _read_csv(file: Path) -> Iterator[tuple[int, dict[str, Any] | BadRow]]:
    csv.field_size_limit(2**31 - 1)
    with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        reader = csv.reader(lines)
        header = next(reader, [])
        line = reader.line_num + 1
        for cells in reader:
            if len(cells) == len(header):
                yield line, dict(zip(header, cells, strict=True))
            elif cells:
                yield line, BadRow("", f"{len(cells)} columns, expected {len(header)}")
            line = reader.line_num + 1


def _read_json(file: Path) -> Iterator[tuple[int, dict[str, Any] | BadRow]]:
    """A list of objects: not streamed, so not one of the formats of one's own data."""
    try:
        records = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        yield 1, BadRow("", f"not JSON ({error})")
        return
    for number, record in enumerate(records if isinstance(records, list) else [records], start=1):
        yield number, record if isinstance(record, dict) else BadRow("", "not a JSON object")


def _read_jsonl(file: Path) -> Iterator[tuple[int, dict[str, Any] | BadRow]]:
    for number, line in numbered_lines(file):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            yield number, BadRow("", f"not JSON ({error})")
            continue
        yield number, record if isinstance(record, dict) else BadRow("", "not a JSON object")


def _read_parquet(
    file: Path, columns: tuple[str, ...] | None
) -> Iterator[tuple[int, dict[str, Any] | BadRow]]:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(file, memory_map=True) as table:
            names = [n for n in table.schema_arrow.names if columns is None or n in columns]
            number = 0
            for batch in table.iter_batches(batch_size=200, columns=names):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record
    except pyarrow.ArrowInvalid as error:
        raise UserError(f"{file}: not a Parquet file ({error})") from None
