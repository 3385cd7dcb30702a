"""The check of every row on its way into a task: labels, ids, texts, vectors, images."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ssmlbench.core.counts import counted
from ssmlbench.core.errors import ListedMistakes, UserError, is_passing, plain_reason
from ssmlbench.core.plain_files import plain_bytes
from ssmlbench.core.plain_text import valid_text
from ssmlbench.data.adapter import BadRow, DatasetAdapter, Kind, Row
from ssmlbench.data.images import as_stored, png_of_array
from ssmlbench.data.label_lists import LabelList, knowledge, label_list
from ssmlbench.data.row_contract import sound_rows
from ssmlbench.data.traps import SeenInputs, input_digest

SHOWN_PROBLEMS = 5
UTF_16_ZEROS = 4
"""A text with a zero among so many characters is UTF-16 that was read as UTF-8."""
UNJUDGED = "test row that is not fully labelled"
"""Metrics need every label of a test row; without them it belongs into an `unlabelled` file."""


@dataclass(frozen=True)
class StoredInput:
    """An input as it is written."""

    input: Any
    content: bytes  # what is fingerprinted
    converted: str = ""  # what kind of image it was, if not 8-bit grey or RGB

    @property
    def digest(self) -> int:
        """The same for equal inputs."""
        return input_digest(self.input if isinstance(self.input, str) else self.content)


@dataclass(frozen=True)
class StoredRow:
    """A good row as it is written."""

    stored: StoredInput
    labels: LabelList
    id: str
    back_translation: str


class Problems:
    """The bad rows so far: counted by kind, the first few kept for the error message."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.first: list[BadRow] = []

    def add(self, bad: BadRow) -> None:
        """Count it, and keep it if it is among the first."""
        self.counts[bad.kind] += 1
        if len(self.first) < SHOWN_PROBLEMS:
            self.first.append(bad)

    def error(self, name: str) -> UserError:
        """The error that shows the first ones with file and line, and counts the rest."""
        total = sum(self.counts.values())
        kinds = ", ".join(f"{kind}: {count:,}" for kind, count in sorted(self.counts.items()))
        lines = [f"data set {name}: {counted(total, 'bad row')} ({kinds})"]
        lines += [f"  {bad.where}: {bad.reason}" for bad in self.first]
        if total > len(self.first):
            lines.append(f"  … and {total - len(self.first):,} more")
        if self.counts[UNJUDGED]:
            lines.append(
                "rows without labels belong into a file `unlabelled.csv`, .jsonl or .parquet"
            )
        lines.append("correct the files, or leave these rows out with --skip-bad")
        return ListedMistakes(*lines)


class Ids:
    """The ids so far, an eight-byte digest of each: no id may come twice in a split.

    per_split: whether ids may start again in another split, as row numbers do.
    """

    def __init__(self, per_split: bool):
        self.per_split = per_split
        self.again = 0  # ids of an earlier split that came again
        self._earlier: set[int] = set()
        self._seen: set[int] = set()

    def start_split(self) -> None:
        """Begin the next split: the rows that follow belong to it."""
        self._earlier |= self._seen
        self._seen = set()

    def known(self, id_: str) -> bool:
        """Whether the id has come before and may not come again."""
        short = _short(id_)
        return short in self._seen or (not self.per_split and short in self._earlier)

    def add(self, id_: str) -> None:
        """Remember the id of a row that is kept."""
        short = _short(id_)
        self.again += short in self._earlier
        self._seen.add(short)

    def notes(self) -> list[str]:
        """A line for the card if ids start again."""
        if not self.again:
            return []
        return [f"ids start again in each split: {self.again:,} ids of train come again in test"]


def _short(id_: str) -> int:
    digest = hashlib.blake2b(id_.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest)


class RowChecker:
    """Checks the rows of a data set, split by split, and remembers what its card should tell."""

    def __init__(self, adapter: DatasetAdapter, label_count: int):
        self.adapter = adapter
        self.label_count = label_count
        self.problems = Problems()
        self.ids = Ids(adapter.ids_per_split)
        self.inputs = SeenInputs()
        self.converted: Counter[str] = Counter()
        self.dropped = 0  # training rows whose input is a test row's
        self._width: int | None = None  # of the vectors
        folder = adapter.folder if adapter.kind == "image" and adapter.is_built_in else None
        self._inside = os.path.abspath(folder) if folder else ""  # noqa: PTH100 (as below)

    def rows(self, split: str) -> Iterator[StoredRow]:
        """The good rows of a split; the others are counted in `problems`."""
        self.ids.start_split()
        leaks = self._test_inputs() if split == "train" and self.adapter.drop_leaks else set[int]()
        rows = sound_rows(self.adapter, split, self.label_count)
        for number, row in enumerate(rows, start=1):
            checked = self.checked(row, split, row.where or f"{split} row {number}")
            if isinstance(checked, BadRow):
                self.problems.add(checked)
                continue
            digest = checked.stored.digest
            if digest in leaks:
                self.dropped += 1
                continue
            if isinstance(row, Row) and row.id:
                self.ids.add(row.id)
            if checked.stored.converted:
                self.converted[checked.stored.converted] += 1
            self.inputs.add(split, digest)
            yield checked

    def _test_inputs(self) -> set[int]:
        stored = (
            _stored(row, self.adapter.kind, "")
            for row in sound_rows(self.adapter, "test", self.label_count)
            if isinstance(row, Row)
        )
        return {s.digest for s in stored if isinstance(s, StoredInput)}

    def checked(self, row: Row | BadRow, split: str, where: str) -> StoredRow | BadRow:
        """The row as it is written, or what is wrong with it. where: how to call it."""
        if isinstance(row, BadRow):
            return row
        try:
            labels = label_list(row.labels, row.unknown, self.label_count)
        except ValueError as error:
            return BadRow(where, str(error), "unknown label")
        if split == "test" and (known := knowledge(labels)) != "labelled":
            return BadRow(where, f"a test row must be labelled, this one is {known}", UNJUDGED)
        if row.id and self.ids.known(row.id):
            return BadRow(where, f"id {row.id!r} occurs twice", "duplicate id")
        if self._inside and self._leads_outside(row.input):
            reason = "the path of its image leads out of the data folder"
            return BadRow(where, reason, "image outside the data folder")
        stored = _stored(row, self.adapter.kind, where)
        if isinstance(stored, BadRow):
            return stored
        if self.adapter.kind == "vector":
            self._width = self._width or len(stored.input)
            if len(stored.input) != self._width:
                reason = f"a vector of {len(stored.input)} numbers, others have {self._width}"
                return BadRow(where, reason, "vector of another length")
        return StoredRow(stored, labels, valid_text(row.id or where), row.back_translation)

    def _leads_outside(self, image: Any) -> bool:
        """Whether a list of a built-in data set has `..` or an absolute path. Links may lead elsewhere."""
        path = os.path.abspath(image) if isinstance(image, Path) else ""  # noqa: PTH100 (links stay)
        return bool(path) and not path.startswith(self._inside + os.sep)

    def notes(self) -> list[str]:
        """Lines for the card."""
        notes = self.ids.notes()
        inputs = {"text": "text", "image": "image", "vector": "vector"}[self.adapter.kind]
        notes += self.inputs.notes(inputs)
        if self.dropped:
            notes.append(
                f"{self.dropped:,} training rows were left out: test rows have their {inputs}"
            )
        notes += [
            f"{count:,} images were converted to 8-bit grey or RGB: {what}"
            for what, count in sorted(self.converted.items())
        ]
        return notes


def _stored(row: Row, kind: Kind, where: str) -> StoredInput | BadRow:
    if kind == "text":
        if not row.input.strip():
            return BadRow(where, "the text is empty")
        if fault := text_fault(row.input):
            return BadRow(where, fault)
        try:
            translation = row.back_translation and f"\0{row.back_translation}"
            return StoredInput(row.input, f"{row.input}{translation}".encode())
        except UnicodeEncodeError:
            return BadRow(where, "the text is not valid UTF-8")
    if kind == "vector":
        vector = np.ascontiguousarray(row.input, dtype=np.float32)
        if not np.isfinite(vector).all():
            return BadRow(where, "a value of the vector is not a finite number")
        return StoredInput(vector, vector.tobytes())
    return _stored_image(row.input, where)


def text_fault(text: str) -> str:
    """What is wrong with a text that was read in a false encoding; empty if nothing is."""
    if text.count("\0") * UTF_16_ZEROS > len(text):
        return "the text is full of zero characters: is it UTF-16?"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "the text is not valid UTF-8"
    return ""


def _stored_image(image: Any, where: str) -> StoredInput | BadRow:
    named = f" {image.name[:60]}" if isinstance(image, Path) else ""
    try:
        if isinstance(image, Path) and image.exists() and not image.is_file():
            return BadRow(where, f"image{named} is not a plain file", "unreadable image")
        if isinstance(image, np.ndarray):
            content, converted = as_stored(png_of_array(image))
            source = np.ascontiguousarray(image).tobytes()
        else:
            source = plain_bytes(image) if isinstance(image, Path) else image
            content, converted = as_stored(source)
    except Exception as error:  # PIL raises SyntaxError, struct.error and others
        if is_passing(error):  # --skip-bad would leave a sound row out
            raise
        missing = isinstance(error, FileNotFoundError)
        reason = f"{type(error).__name__}: {plain_reason(error)}"
        why = "does not exist" if missing else f"cannot be read ({reason})"
        return BadRow(where, f"image{named} {why}", "unreadable image")
    # Features of images that were once read in another way must not be taken for these.
    marked = source + f"\0{converted} as 8 bits".encode() if converted else source
    return StoredInput({"bytes": content, "path": None}, marked, converted)
