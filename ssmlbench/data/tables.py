"""A user's folder of CSV, JSONL or Parquet files as a data set, without a line of Python.

A row has a text or an image, and its labels: a list of names, a list of ids, or 0/1 columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ssmlbench.core.errors import UserError
from ssmlbench.data.adapter import SPLITS, BadRow, Row, numbered_lines
from ssmlbench.data.records import READERS, read_records
from ssmlbench.data.user_files import UserFiles

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

TableRow = Mapping[str, Any]


class TableFolder(UserFiles):
    """The tables of a user's folder."""

    layout = LAYOUT

    @classmethod
    def at(cls, path: Path) -> type[TableFolder]:
        """Build the data set class of a folder; a UserError if it has not the layout above."""
        folder = path
        found = {split: split_files(folder, split) for split in SPLITS}
        absent = [split for split in SPLITS if not found[split]]
        if absent:
            raise UserError(
                f"data set {folder}: no {' and no '.join(absent)} file in it; it should look like"
                + LAYOUT.replace("\n", "\n    ").rstrip()
            )
        first = next(iter(read_records(found["train"][0])), None)
        columns = set(first[1]) if first and not isinstance(first[1], BadRow) else set()
        kind = "text" if columns & set(TEXT_COLUMNS) else "image"
        if not columns & {*TEXT_COLUMNS, *IMAGE_COLUMNS}:
            raise UserError(
                f"data set {folder}: {found['train'][0].name} has no text or image column "
                f"(it has: {', '.join(sorted(columns)) or 'no readable first row'}); call it "
                "`text` or `image`"
            )
        backbone = "bert-base-uncased" if kind == "text" else "resnet50"
        translated = kind == "text" and TRANSLATION_COLUMN in columns
        return cls.named(folder, kind=kind, backbone=backbone, back_translated=translated)

    @classmethod
    def raw_folder(cls) -> Path:
        """Return the folder itself."""
        return cls.home

    def files(self, split: str) -> list[Path]:
        """Return the files of a split, in order."""
        assert self.folder is not None
        return split_files(self.folder, split)

    def source_files(self) -> list[Path]:
        """Return the files of both splits."""
        return [file for split in SPLITS for file in self.files(split)]

    def card_notes(self) -> list[str]:
        """Name the validation files, which are not used."""
        notes = []
        for split in ("validation", "valid", "val", "dev"):
            assert self.folder is not None
            if files := split_files(self.folder, split):
                notes.append(f"{files[0].name} is not used: validation rows come from train")
        return notes

    @cached_property
    def _flag_columns(self) -> list[str]:
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
        """Return the 0/1 columns, the lines of labels.txt, or every label of the rows, sorted."""
        return self._names

    @cached_property
    def _names(self) -> list[str]:
        if self._flag_columns:
            return self._flag_columns
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
        """Yield the rows of a split's files in order."""
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
        self, record: TableRow, positions: dict[str, int], by_position: bool, where: str
    ) -> tuple[int, ...] | BadRow:
        if self._flag_columns:
            chosen = []
            for k, name in enumerate(self._flag_columns):
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

    def _input(self, record: TableRow) -> Any:
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
    """Return `train.csv`, or shards such as `train-00000-of-00002.parquet`, in order."""
    return sorted(
        file
        for file in folder.glob(f"{split}*")
        if file.suffix in READERS and re.fullmatch(rf"{split}([-_.]\d.*)?", file.stem)
    )


def first_of(record: TableRow, columns: tuple[str, ...]) -> Any:
    """Return the value of the first of these columns that the record has, or None."""
    return next((record[c] for c in columns if record.get(c) is not None), None)


def label_values(record: TableRow) -> list[str] | BadRow:
    """Return the labels of a row as texts, from a list, a JSON list or a text joined by `;|,`."""
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
