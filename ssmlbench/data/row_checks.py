"""The check of every row on its way into a task: labels, ids, texts, vectors, images."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ssmlbench.core.errors import UserError
from ssmlbench.data.adapter import BadRow, DatasetAdapter, Kind, Row
from ssmlbench.data.label_lists import LabelList, knowledge, label_list
from ssmlbench.data.row_contract import sound_rows

SHOWN_PROBLEMS = 5
UNJUDGED = "test row that is not fully labelled"
"""Metrics need every label of a test row; without them it belongs into an `unlabelled` file."""
CHECKED_PIXELS = 64
"""Images are decoded to about this size, to see that they can be: a third of the cost for JPEG."""


@dataclass(frozen=True)
class StoredRow:
    """A good row as it is written.

    content: the bytes of its input that are fingerprinted.
    """

    input: Any
    content: bytes
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
        lines = [f"data set {name}: {total:,} bad row{'s' if total > 1 else ''} ({kinds})"]
        lines += [f"  {bad.where}: {bad.reason}" for bad in self.first]
        if total > len(self.first):
            lines.append(f"  … and {total - len(self.first):,} more")
        if self.counts[UNJUDGED]:
            lines.append(
                "rows without labels belong into a file `unlabelled.csv`, .jsonl or .parquet"
            )
        lines.append("correct the files, or leave these rows out with --skip-bad")
        return UserError("\n".join(lines))


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
        """From here on, rows are of the next split."""
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


def checked_rows(
    adapter: DatasetAdapter, split: str, label_count: int, ids: Ids, problems: Problems
) -> Iterator[StoredRow]:
    """The good rows of a split; the others are added to `problems`."""
    for number, row in enumerate(sound_rows(adapter, split, label_count), start=1):
        if isinstance(row, BadRow):
            problems.add(row)
            continue
        where = row.where or f"{split} row {number}"
        checked = _checked(row, adapter.kind, split, label_count, ids, where)
        if isinstance(checked, BadRow):
            problems.add(checked)
            continue
        if row.id:
            ids.add(row.id)
        yield checked


def _checked(
    row: Row, kind: Kind, split: str, label_count: int, ids: Ids, where: str
) -> StoredRow | BadRow:
    try:
        labels = label_list(row.labels, row.unknown, label_count)
    except ValueError as error:
        return BadRow(where, str(error), "unknown label")
    if split == "test" and knowledge(labels) != "labelled":
        return BadRow(
            where, f"a test row must be labelled, this one is {knowledge(labels)}", UNJUDGED
        )
    if row.id and ids.known(row.id):
        return BadRow(where, f"id {row.id!r} comes a second time", "duplicate id")
    stored = _stored(row, kind, where)
    if isinstance(stored, BadRow):
        return stored
    return StoredRow(*stored, labels, row.id or where, row.back_translation)


def _stored(row: Row, kind: Kind, where: str) -> tuple[Any, bytes] | BadRow:
    """The value that is written for an input, and the bytes that are fingerprinted."""
    if kind == "text":
        if not row.input.strip():
            return BadRow(where, "the text is empty")
        try:
            translation = row.back_translation and f"\0{row.back_translation}"
            return row.input, f"{row.input}{translation}".encode()
        except UnicodeEncodeError:
            return BadRow(where, "the text is not valid UTF-8")
    if kind == "vector":
        vector = np.ascontiguousarray(row.input, dtype=np.float32)
        if not np.isfinite(vector).all():
            return BadRow(where, "a value of the vector is not a finite number")
        return vector, vector.tobytes()
    if isinstance(row.input, np.ndarray):
        return {"bytes": _png(row.input), "path": None}, np.ascontiguousarray(row.input).tobytes()
    if isinstance(row.input, Path) and row.input.exists() and not row.input.is_file():
        return BadRow(where, f"image {row.input.name} is not a plain file", "unreadable image")
    try:
        content = row.input.read_bytes() if isinstance(row.input, Path) else row.input
        _check_image(content)
    except Exception as error:  # PIL raises SyntaxError, struct.error and others
        missing = isinstance(error, FileNotFoundError)
        named = f" {row.input.name}" if isinstance(row.input, Path) else ""
        why = "does not exist" if missing else f"cannot be read ({type(error).__name__}: {error})"
        return BadRow(where, f"image{named} {why}", "unreadable image")
    return {"bytes": content, "path": None}, content


def _check_image(content: bytes) -> None:
    """Decode it, small: a header alone does not show a file that was cut off."""
    from PIL import Image

    with Image.open(io.BytesIO(content)) as image:
        image.draft(image.mode, (CHECKED_PIXELS, CHECKED_PIXELS))
        image.load()


def _png(array: Any) -> bytes:
    """Images made in memory are kept lossless."""
    from PIL import Image

    png = io.BytesIO()
    Image.fromarray(array).save(png, format="PNG")
    return png.getvalue()
