"""Writes an adapter's rows as a task on disk: streamed, checked, and complete or absent.

Memory holds one batch of rows, and an eight-byte digest of each row's id, to find duplicate ids.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ssmlbench.core.errors import UserError
from ssmlbench.core.paths import cache_root
from ssmlbench.data.adapter import SPLITS, BadRow, DatasetAdapter, Kind, Row
from ssmlbench.data.task import Card, Task

TASK_FORMAT = 2
"""Raised when the files of a task change; copies of another format are rewritten."""

BATCH_ROWS = {"image": 50, "text": 1000, "vector": 500}
SHOWN_PROBLEMS = 5
CHECKED_PIXELS = 64
"""Images are decoded to about this size, to see that they can be: a third of the cost for JPEG."""

Report = Callable[[str, int], None]
"""Called after each batch with the split and the number of its rows that are written."""


def is_prepared(adapter: DatasetAdapter) -> bool:
    """Whether the task of this adapter's version is on disk."""
    return (_folder(adapter) / "card.json").is_file()


def prepare(
    adapter: DatasetAdapter,
    skip_bad: bool = False,
    overwrite: bool = False,
    report: Report = lambda split, rows: None,
) -> Task:
    """The adapter's task, written on first use; processes that need the same one wait for a lock.

    skip_bad: leave bad rows out and count them on the card; without it they are a UserError.
    overwrite: write it even if it is already on disk.
    """
    from filelock import FileLock

    folder = _folder(adapter)
    if overwrite or not is_prepared(adapter):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if overwrite or not is_prepared(adapter):
                _write(adapter, folder, skip_bad, report)
    return Task(folder)


def _folder(adapter: DatasetAdapter) -> Path:
    key = f"-{adapter.source_key()}" if adapter.source_key() else ""
    return cache_root() / "tasks" / f"{adapter.name}-v{adapter.version}.{TASK_FORMAT}{key}"


def check_source(adapter: DatasetAdapter, card: Card) -> None:
    """Raise a UserError if the task was prepared from another folder than the adapter's."""
    source = _source(adapter)
    if adapter.folder is not None and source != card.source:
        raise UserError(
            f"data set {card.name} was prepared from {card.source}, not from {source}; "
            f"`ssmlbench data prepare {card.name} --from {source}` prepares that one instead"
        )


def _source(adapter: DatasetAdapter) -> str:
    if adapter.folder is not None:
        return str(adapter.folder.resolve())
    return f"{adapter.hub.repository}@{adapter.hub.revision}" if adapter.hub else ""


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
        lines.append("correct the files, or leave these rows out with --skip-bad")
        return UserError("\n".join(lines))


def _write(adapter: DatasetAdapter, folder: Path, skip_bad: bool, report: Report) -> None:
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        names = _label_names(adapter)
        unfinished.mkdir(parents=True)
        card = _write_task(adapter, names, unfinished, skip_bad, report)
        (unfinished / "card.json").write_text(
            json.dumps(asdict(card), indent=1, ensure_ascii=False), encoding="utf-8"
        )
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _label_names(adapter: DatasetAdapter) -> list[str]:
    if not adapter.files_there and adapter.hub is None:
        raise adapter.missing("its files are not there")
    names = adapter.label_names()
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice or not names:
        what = f"label {twice[0]!r} comes twice" if twice else "there are no labels"
        raise UserError(f"data set {adapter.name}: {what}")
    return names


def _write_task(
    adapter: DatasetAdapter, names: list[str], folder: Path, skip_bad: bool, report: Report
) -> Card:
    fingerprint = hashlib.sha256(json.dumps([adapter.name, names]).encode())
    problems, seen = Problems(), set[int]()
    counts, positives = {}, {}
    for split in SPLITS:
        rows = _checked(adapter, split, len(names), seen, problems)
        counts[split], positives[split] = _write_split(
            rows,
            adapter.kind,
            adapter.back_translated and split == "train",
            folder / f"{split}.arrow",
            len(names),
            fingerprint,
            partial(report, split),
        )
        fingerprint.update(f"{split} {counts[split]}".encode())
    if problems.counts and not skip_bad:
        raise problems.error(adapter.name)
    for split in SPLITS:
        if not counts[split]:
            left = f" (bad rows left out: {sum(problems.counts.values()):,})"
            raise UserError(
                f"data set {adapter.name}: its {split} split has no rows"
                + (left if problems.counts else "")
            )
    return Card(
        name=adapter.name,
        kind=adapter.kind,
        version=adapter.version,
        label_names=names,
        rows=counts,
        positives=positives,
        fingerprint=fingerprint.hexdigest()[:16],
        flips=adapter.flips,
        licence=adapter.licence,
        citation=adapter.citation,
        notes=adapter.card_notes(),
        source=_source(adapter),
        skipped=dict(sorted(problems.counts.items())),
    )


def _checked(
    adapter: DatasetAdapter, split: str, label_count: int, seen: set[int], problems: Problems
) -> Iterator[tuple[Any, bytes, str, list[int]]]:
    """The good rows as (stored input, bytes that are fingerprinted, back-translation, labels)."""
    for number, row in enumerate(adapter.rows(split), start=1):
        if isinstance(row, BadRow):
            problems.add(row)
            continue
        where = row.where or f"{split} row {number}"
        labels = sorted({int(k) for k in row.labels})
        if labels and not (labels[0] >= 0 and labels[-1] < label_count):
            outside = [k for k in labels if not 0 <= k < label_count]
            reason = f"label position {outside[0]} outside 0..{label_count - 1}"
            problems.add(BadRow(where, reason, "unknown label"))
            continue
        if row.id:
            short = int.from_bytes(hashlib.blake2b(row.id.encode(), digest_size=8).digest())
            if short in seen:
                problems.add(BadRow(where, f"id {row.id!r} comes a second time", "duplicate id"))
                continue
        stored = _stored(row, adapter.kind, where)
        if isinstance(stored, BadRow):
            problems.add(stored)
            continue
        if row.id:
            seen.add(short)
        yield *stored, row.back_translation, labels


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


def _write_split(
    rows: Iterator[tuple[Any, bytes, str, list[int]]],
    kind: Kind,
    back_translated: bool,
    file: Path,
    label_count: int,
    fingerprint: Any,
    report: Callable[[int], None],
) -> tuple[int, list[int]]:
    """Stream one split into an Arrow file; rows go through memory one batch at a time."""
    from datasets.arrow_writer import ArrowWriter

    import datasets

    inputs = {
        "image": datasets.Image(),
        "text": datasets.Value("string"),
        "vector": datasets.List(datasets.Value("float32")),
    }[kind]
    columns = {"input": inputs, "labels": datasets.List(datasets.Value("int32"))}
    if back_translated:
        columns["back_translation"] = datasets.Value("string")
    count, positives = 0, [0] * label_count
    batch: dict[str, list[Any]] = {name: [] for name in columns}
    with ArrowWriter(features=datasets.Features(columns), path=str(file)) as writer:
        for stored, content, translation, labels in rows:
            fingerprint.update(content + str(labels).encode())
            for k in labels:
                positives[k] += 1
            count += 1
            batch["input"].append(stored)
            batch["labels"].append(labels)
            if back_translated:  # a text without an id is its own id
                batch["back_translation"].append(translation if translation.strip() else stored)
            if len(batch["labels"]) == BATCH_ROWS[kind]:
                writer.write_batch(batch)
                batch = {name: [] for name in columns}
                report(count)
        if batch["labels"]:
            writer.write_batch(batch)
            report(count)
        writer.finalize()
    return count, positives
