"""From a record of a table to a row: its input, its labels, its id."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ssmlbench.core.data_options import DataOptions
from ssmlbench.core.whole_numbers import whole_number
from ssmlbench.data.adapter import BadRow, Row
from ssmlbench.data.columns import TRANSLATION_COLUMN, Roles
from ssmlbench.data.label_cells import (
    JOINED,
    NAME_MARK,
    as_list,
    flag,
    is_minus_one,
    joined_by,
    label_values,
    meaning_of_empty,
)
from ssmlbench.data.listed_names import LabelForms
from ssmlbench.data.media import MediaFinder, read_text
from ssmlbench.data.plain_numbers import plain_float
from ssmlbench.data.records import TableRecord

BETWEEN = r"\s*[,;]\s*|\s+"
"""What stands between two numbers in a cell; nothing between two marks is a missing number."""


class RowReader:
    """Turns records into rows.

    names: the labels. by_position: whether ids of labels count from 0 in `names`.
    multi_hot: whether a list of labels has a 0 or 1 for each of `names`.
    columns: those of the first table. folder: where paths of images start.
    forms: how the labels of all parts are written. numbers_are_ids: the format itself names the labels,
    and their numbers are places, even if a name is a number too.
    """

    def __init__(
        self,
        roles: Roles,
        options: DataOptions,
        names: Sequence[str],
        by_position: bool,
        multi_hot: bool,
        columns: Sequence[str],
        folder: Path,
        forms: LabelForms | None = None,
        numbers_are_ids: bool = False,
    ):
        self.roles = roles
        self.options = options
        self.positions = {name: k for k, name in enumerate(names)}
        self.by_position = by_position
        self.multi_hot = multi_hot
        self.known_columns = {*columns, *roles.optional}
        self.finder = MediaFinder(folder, options.allow_outside)
        self._named = set[int]()  # hashes of the paths so far
        self._minus_one = self._zero = False  # whether a 0/1 cell had it
        self.forms = forms or LabelForms()
        self.numbers_are_ids = numbers_are_ids
        self._marked_names = [name for name in names if by_position and re.search(JOINED, name)]

    def row(
        self, record: TableRecord, part: str, where: str, near: Path | None = None
    ) -> Row | BadRow:
        """Read one record of a part. near: the folder of its table."""
        labels: tuple[int, ...] | None = None
        unknown: tuple[int, ...] = ()
        if part != "unlabelled":
            found = self._labels(record, where)
            if isinstance(found, BadRow):
                return BadRow(where, found.reason, found.kind)
            labels, unknown = found
        value = self.input(record, near)
        if isinstance(value, BadRow):
            return BadRow(where, value.reason, value.kind)
        if part != "unlabelled" and self._is_strange(record):
            more = min(record.keys() - self.known_columns)
            return BadRow(where, f"column {more} is not in the first training row")
        if part == "train" and self.roles.kind == "text" and self._is_late(record):
            return BadRow(where, f"column {TRANSLATION_COLUMN} is not in the first training row")
        identity = record.get(self.roles.id) if self.roles.id else None
        translation = record.get(self.roles.translation) if self.roles.translation else None
        if not isinstance(translation, str) or part == "test":
            translation = ""
        id_ = self._path(record) if identity is None else str(identity)
        return Row(value, labels, id_, where, translation, unknown)

    def _labels(
        self, record: TableRecord, where: str
    ) -> tuple[tuple[int, ...] | None, tuple[int, ...]] | BadRow:
        """The positions of positive and of unknown labels."""
        if self.roles.flags:
            return self._flags(record)
        if self.multi_hot and (cells := as_list(record.get(self.roles.labels))) is not None:
            return self._positions(dict(enumerate(cells)))
        values = listed_labels(record, self.roles.labels, self.options, where)
        if isinstance(values, BadRow):
            return values
        if values is None:
            return None, ()
        cell = record.get(self.roles.labels)
        if not self.options.label_separator and (marked := self._marked(cell)):
            return BadRow("", f"is {marked!r} one label or several? {NAME_MARK}", "unclear labels")
        if len(values) > len({*values}) and {*values} <= {"0", "1"}:
            reason = f"labels {str(cell)[:40]} are a 0 or 1 for each label, and those of other rows are not"
            return BadRow("", reason)
        chosen = []
        typed = self.numbers_are_ids and not _has_text(cell)
        for value in values:
            position = self._position(value, typed)
            if position is None:
                return BadRow("", f"unknown label {value!r}", "unknown label")
            chosen.append(position)
        return tuple(chosen), ()

    def _marked(self, cell: Any) -> str:
        """The label in a cell of joined names that has a mark between labels in it; "" if there is none."""
        if not self._marked_names or not joined_by(cell):
            return ""
        return next((name for name in self._marked_names if name in cell), "")

    def _position(self, value: str, is_id: bool) -> int | None:
        """The position of a label; None if it is none. is_id: it is a number that counts the names."""
        number = whole_number(value) if self.by_position else None
        counted = number if number is not None and number < len(self.positions) else None
        if is_id:
            return counted
        if (named := self.positions.get(value)) is not None:
            self.forms.add_name(value, named)
            return named
        if counted is not None:
            self.forms.add_id(counted)
        return counted

    def _is_strange(self, record: TableRecord) -> bool:
        """Whether it has a column that no other row has, where every column means something."""
        counts = bool(self.roles.flags) or len(self.roles.inputs) > 1
        chosen = self.options.chooses_columns
        return counts and not chosen and not record.keys() <= self.known_columns

    def _is_late(self, record: TableRecord) -> bool:
        """Whether it has a back-translation, and the first row has none: none would be used."""
        return not self.roles.translation and TRANSLATION_COLUMN in record

    def _flags(self, record: TableRecord) -> tuple[tuple[int, ...], tuple[int, ...]] | BadRow:
        absent = [name for name in self.roles.flags if name not in record]
        if absent:
            return BadRow("", f"column {absent[0]} is missing")
        return self._positions({name: record[name] for name in self.roles.flags})

    def _positions(
        self, cells: Mapping[Any, Any]
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | BadRow:
        if self.options.empty_labels == "none":
            return positions_of({k: 0 if is_minus_one(v) else v for k, v in cells.items()})
        found = positions_of(cells)
        if not self._zero and not isinstance(found, BadRow):
            self._zero = sum(map(len, found)) < len(cells)
            self._minus_one = self._minus_one or any(map(is_minus_one, cells.values()))
        return found

    @property
    def asks_for_minus_one(self) -> bool:
        """Whether 0/1 cells had -1 and never 0, and the user has not said what that means."""
        return self._minus_one and not self._zero and not self.options.empty_labels

    def _path(self, record: TableRecord) -> str:
        """The path of an input that is a file, as its id; empty if it came before."""
        path = self.path_of(record)
        if not path or hash(path) in self._named:
            return ""
        self._named.add(hash(path))
        return path

    def path_of(self, record: TableRecord) -> str:
        """The path of an input that is a file of its own, as the table has it; else empty."""
        value = record.get(self.roles.inputs[0])
        is_file = self.roles.kind == "image" or self.roles.in_files
        return value if is_file and isinstance(value, str) else ""

    def input(self, record: TableRecord, near: Path | None = None) -> Any:
        """The raw input of a record, or a BadRow. near: the folder of its table."""
        if self.roles.kind == "vector":
            return vector_of(record, self.roles.inputs)
        value = record.get(self.roles.inputs[0])
        if self.roles.kind == "text":
            if not isinstance(value, str):
                return BadRow("", "no text in it")
            found = self.finder.find(value, near) if self.roles.in_files else value
            return read_text(found) if isinstance(found, Path) else found
        if isinstance(value, dict):  # Hugging Face's own form of an image in Parquet
            value = value.get("bytes") or value.get("path")
        if isinstance(value, str) and value:
            return self.finder.find(value, near)
        return value if isinstance(value, bytes) else BadRow("", "no image in it")


def positions_of(cells: Mapping[Any, Any]) -> tuple[tuple[int, ...], tuple[int, ...]] | BadRow:
    """The positions of the positive and of the unknown ones among 0/1 cells."""
    positive, unknown = [], []
    for k, (name, cell) in enumerate(cells.items()):
        value = flag(cell)
        if isinstance(value, BadRow):
            return BadRow("", f"column {name}: {value.reason}")
        if value is None:
            unknown.append(k)
        elif value:
            positive.append(k)
    return tuple(positive), tuple(unknown)


def listed_labels(
    record: TableRecord, column: str, options: DataOptions, where: str
) -> list[str] | BadRow | None:
    """The labels of a record that has them in one column; None if they are unknown."""
    if column not in record:
        return meaning_of_empty(options.empty_labels, where)
    return label_values(record[column], options.label_separator, options.empty_labels, where)


def _has_text(cell: Any) -> bool:
    """Whether labels are texts, not numbers."""
    return isinstance(cell, str) or (
        isinstance(cell, list) and any(isinstance(v, str) for v in cell)
    )


def _mark(between: str) -> str:
    """What stands between two numbers, without the spaces beside it."""
    return between.strip() or " "


def vector_of(record: TableRecord, columns: Sequence[str]) -> npt.NDArray[np.float32] | BadRow:
    """The vector of a record: a list in one column, or a number in each of several."""
    values: Any = [record.get(c) for c in columns]
    if len(columns) == 1 and not isinstance(values[0], int | float):
        values = values[0]
        if isinstance(values, str):
            text = values.strip("[] \t\n")
            values = re.split(BETWEEN, text)
            if len(set(map(_mark, re.findall(BETWEEN, text)))) > 1:
                return BadRow(
                    "",
                    f"column {columns[0]}: {text[:40]!r} has other marks between numbers; write one, and "
                    "decimals with a point",
                )
        if not isinstance(values, list):
            return BadRow("", f"no vector in column {columns[0]}")
    numbers = np.empty(len(values), dtype=np.float32)
    for k, value in enumerate(values):
        try:
            numbers[k] = plain_float(value)
        except (TypeError, ValueError):
            column = columns[k] if len(columns) > 1 else columns[0]
            found = "a missing value" if value in (None, "") else repr(value)[:40]
            return BadRow("", f"column {column}: {found} is not a number")
    return numbers
