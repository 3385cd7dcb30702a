"""Sparse vectors in the multi-label form of LIBSVM files: `1,3 5:0.2 7:1`, one row per line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ssmlbench.core.data_options import DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.data.adapter import BadRow, InputColumns, Row, numbered_lines
from ssmlbench.data.label_cells import counts_from, meaning_of_empty
from ssmlbench.data.listed_names import are_numbers, check_counted, read_names
from ssmlbench.data.plain_numbers import plain_float
from ssmlbench.data.table_source import check_unread, part_name
from ssmlbench.data.text_files import check_plain
from ssmlbench.data.user_files import PARTS, SPLIT_NAMES, UserFiles

SUFFIXES = (".svm", ".libsvm", ".svmlight")
LAYOUT = """
train.svm, .libsvm or .svmlight   or one file with all rows
test.svm                        optional: without it, --holdout or --regime given
unlabelled.svm                  optional: training rows whose labels are not known
labels.txt                      optional: the names of the labels 0, 1, …
"""
DENSE_BYTES, SMALL_DENSE_BYTES, TIMES_AS_LARGE = 32 * 2**30, 2**28, 10_000
"""Vectors are stored dense: more than the first is refused, and more than the second if that is so many
times the size of the files."""
LEAST_CHANCE = 0.5
"""A file without the feature 0 counts from 1, if it would have none by chance less often than this."""
HEADER = re.compile(r"\d{1,18} \d{1,18} \d{1,18}")
"""Rows, features, labels: the first line of files of the extreme classification repository."""


@dataclass(frozen=True)
class SparseRow:
    """One line: None for labels that are not there."""

    labels: list[str] | None
    values: dict[int, float]


@dataclass
class Extent:
    """The numbers of rows, features and labels of all files together."""

    rows: int = 0
    least: int = 1  # the smallest number of a feature: 0 if they count from 0
    largest: int = 0  # the largest one
    with_zero: int = 0  # rows that have the feature 0

    @property
    def width(self) -> int:
        """D."""
        return self.largest + 1 - self.least


class LibsvmFiles(UserFiles):
    """LIBSVM files."""

    layout = LAYOUT
    format_name = "LIBSVM files"
    reads = frozenset({"empty_labels"})
    kind = "vector"
    backbone = "vector"

    @classmethod
    def at(cls, path: Path, options: DataOptions) -> type[LibsvmFiles]:
        """Build the data set class of a folder or of one file."""
        if "train" not in svm_files(path):
            raise UserError(f"data set {path}: no train file in it; it should look like{LAYOUT}")
        return cls.named(path, options)

    def source_files(self) -> list[Path]:
        """Return the files."""
        return list(svm_files(self.home).values())

    def parts(self) -> tuple[str, ...]:
        """Return the parts that have a file."""
        return tuple(svm_files(self.home))

    @cached_property
    def _extent(self) -> tuple[Extent, list[str]]:
        """The extent of all files, and the labels in them."""
        labels = set[str]()
        extents: dict[Path, Extent] = {}
        for part, file in svm_files(self.home).items():
            of_file = extents[file] = Extent()
            for _, row in read_lines(file):
                if isinstance(row, BadRow):
                    continue
                of_file.rows += 1
                of_file.with_zero += 0 in row.values
                if row.values:
                    of_file.least = min(of_file.least, *row.values)
                    of_file.largest = max(of_file.largest, *row.values)
                if part != "unlabelled":
                    labels.update(row.labels or ())
        check_starts(extents)
        every = extents.values()
        extent = Extent(
            sum(e.rows for e in every), min(e.least for e in every), max(e.largest for e in every)
        )
        dense = extent.rows * extent.width * 4
        sparse = sum(file.stat().st_size for file in extents)
        if dense > min(DENSE_BYTES, max(SMALL_DENSE_BYTES, TIMES_AS_LARGE * sparse)):
            raise UserError(
                f"data set {self.home}: {extent.rows:,} rows of {extent.width:,} features would take "
                f"{dense / 2**30:,.1f} GiB as dense vectors; reduce the features first (e.g. TruncatedSVD)"
            )
        return extent, sorted(labels, key=int)

    @cached_property
    def _listed(self) -> list[str]:
        return read_names(self.folder or self.raw_folder())

    def label_names(self) -> list[str]:
        """Return the lines of labels.txt, or the numbers of the labels."""
        return self._listed or self._extent[1]

    def columns(self) -> InputColumns:
        """Return the numbers of the features."""
        extent = self._extent[0]
        numbers = tuple(str(k) for k in range(extent.least, extent.largest + 1))
        return InputColumns(numbers, all=numbers)

    def part_rows(self, part: str) -> Iterator[Row | BadRow]:
        """Yield the rows as dense vectors."""
        file, (extent, numbers) = svm_files(self.home)[part], self._extent
        named = are_numbers(self._listed, numbers, f"data set {self.home}")
        positions = {name: k for k, name in enumerate(self._listed if named else numbers)}
        if counted := bool(self._listed) and not named:
            positions = {str(k): k for k in range(len(self._listed))}
        ids, zero = 0, False
        for number, row in read_lines(file):
            where = self.where(file, number)
            if isinstance(row, BadRow):
                yield BadRow(where, row.reason, row.kind)
                continue
            vector = np.zeros(extent.width, dtype=np.float32)
            for index, value in row.values.items():
                vector[index - extent.least] = value
            labels = row.labels
            if labels is None and part != "unlabelled":
                labels = meaning_of_empty(self.options.empty_labels, where)
            strange = [label for label in labels or () if label not in positions]
            if strange:
                yield BadRow(where, f"unknown label {strange[0]!r}", "unknown label")
                continue
            known = None if labels is None else tuple(positions[label] for label in labels)
            ids += len(known or ())
            zero = zero or 0 in (known or ())
            yield Row(vector, known, where=where)
        if counted and ids:
            check_counted(self._listed, f"data set {self.home}")
        if part == "train" and counted and ids and not zero:
            raise counts_from(f"data set {self.home}", "leave labels.txt out")


def check_starts(extents: Mapping[Path, Extent]) -> None:
    """Raise a UserError if features seem to count from 0 in one file and from 1 in another."""
    from_zero = {file: e for file, e in extents.items() if e.least == 0}
    for file, extent in extents.items():
        for other, zero in from_zero.items():
            by_chance = (1 - zero.with_zero / zero.rows) ** extent.rows
            shifted = extent.largest == zero.largest + 1 or by_chance < LEAST_CHANCE
            if file not in from_zero and extent.largest and shifted:
                raise UserError(
                    f"{file}: its features are 1 to {extent.largest}, those of {other.name} 0 to "
                    f"{zero.largest}; if it counts from 0 too, write 0:0 into one of its rows, else count "
                    "from 1 in both"
                )


def svm_files(home: Path) -> dict[str, Path]:
    """The file of each part; a single file is the training part."""
    if not home.is_dir():
        return {"train": home}
    files = {}
    there = sorted(file for file in home.iterdir() if file.suffix.lower() in SUFFIXES)
    for part in PARTS:
        called = [f for f in there if f.stem.lower() in SPLIT_NAMES[part]]
        if len(called) > 1:
            raise UserError(f"data set {home}: {called[0].name} or {called[1].name}? Move one away")
        if called:
            files[part] = called[0]
        shard = next(
            (f for f in there if f not in called and part_name(part).fullmatch(f.stem)), None
        )
        if shard:
            raise UserError(
                f"data set {home}: {shard.name} would not be read; join the files of {part} rows"
            )
        check_unread(home, part_name(part), called)
    return files


def read_lines(file: Path) -> Iterator[tuple[int, SparseRow | BadRow]]:
    """The rows of a file with their lines."""
    check_plain(file)
    rows, declared = 0, None
    for number, line in numbered_lines(file):
        text = line.partition("#")[0].rstrip()
        if number == 1 and HEADER.fullmatch(text):
            declared = int(text.split()[0])
        elif text.strip():
            rows += 1
            yield number, read_line(text)
    if declared not in (None, rows):
        raise UserError(f"{file}: its first line says {declared:,} rows, and there are {rows:,}")


def read_line(text: str) -> SparseRow | BadRow:
    """One line: labels with commas between them, then index:value pairs."""
    first, *pairs = text.split()
    labels: list[str] | None = None
    if text[0].isspace() or ":" in first:
        pairs = [first, *pairs]
    else:
        labels = []
        for label in first.split(","):
            whole = label.removesuffix(".0")
            if not (whole.isascii() and whole.isdecimal() and len(whole) < 10):
                return BadRow("", f"label {label[:20]!r} is not a number from 0", "unknown label")
            labels.append(str(int(whole)))
    values: dict[int, float] = {}
    for pair in pairs:
        index, colon, value = pair.partition(":")
        if index == "qid":
            continue
        if not (colon and index.isascii() and index.isdecimal() and len(index) < 10):
            return BadRow("", f"expected INDEX:VALUE, found {pair[:20]!r}")
        if int(index) in values:
            return BadRow("", f"feature {index} occurs twice")
        try:
            values[int(index)] = plain_float(value)
        except ValueError:
            return BadRow("", f"feature {index}: {value[:20]!r} is not a number")
    return SparseRow(labels, values)
