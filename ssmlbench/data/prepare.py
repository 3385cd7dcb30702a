"""Writes an adapter's rows as a task on disk: streamed, checked, and whole or not at all.

Memory holds one batch of rows, and an eight-byte digest of each row's id, to find duplicate ids.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ssmlbench.core.checksums import file_facts
from ssmlbench.core.errors import DamagedFile, DamageWarning, UserError
from ssmlbench.core.files import naming, publish_folder, read_own_json, remove_folder, write_json
from ssmlbench.core.locks import Lock
from ssmlbench.core.names import check_name
from ssmlbench.core.paths import cache_root
from ssmlbench.core.sealed_files import LABELS, TASKS
from ssmlbench.data.adapter import DatasetAdapter, Kind
from ssmlbench.data.label_lists import LabelCounts
from ssmlbench.data.prepared import TASK_NAME, UNFINISHED
from ssmlbench.data.published import differences_to_published
from ssmlbench.data.row_checks import RowChecker, StoredRow
from ssmlbench.data.row_contract import (
    adapter_error,
    sound_columns,
    sound_label_names,
    sound_notes,
    sound_source_key,
    sound_splits,
)
from ssmlbench.data.task import Card, Task, card_file, inputs_file, labels_file, read_card
from ssmlbench.data.traps import label_notes

if TYPE_CHECKING:
    from datasets import Features

TASK_FORMAT = 9
"""Raised when the files of a task change, or raw files are read differently: copies of another format
are rewritten."""

BATCH_ROWS = {"image": 50, "text": 1000, "vector": 500}

Report = Callable[[str, int], None]
"""Called after each batch with the split and the number of its rows that are written."""


def is_prepared(adapter: DatasetAdapter) -> bool:
    """Whether the task of this adapter's version is on disk; only sizes and times are checked."""
    try:
        read_card(_folder(adapter))
    except (FileNotFoundError, DamagedFile):
        return False
    return True


def prepare(
    adapter: DatasetAdapter,
    skip_bad: bool = False,
    overwrite: bool = False,
    report: Report = lambda split, rows: None,
) -> Task:
    """The adapter's task, written on first use; processes that need the same one wait for a lock.

    A damaged task is written again, from the raw files that its card names.

    skip_bad: leave bad rows out and count them on the card; without it they are a UserError.
    overwrite: write it even if it is already on disk.
    """
    folder = _folder(adapter)
    if overwrite or not is_prepared(adapter):
        with Lock(f"{folder}.lock"):
            if overwrite:
                _write(adapter, folder, skip_bad, report)
            elif not is_prepared(adapter):
                _write_again(adapter, folder, skip_bad, report)
    card = read_card(folder)
    unlike = differences_to_published(card, adapter.published) if adapter.published else []
    return Task(folder, card, unlike)


def prepare_whole(adapter: DatasetAdapter) -> Task:
    """The adapter's task, with files of inputs that were compared with its card.

    If they are damaged, it is written again.
    """
    task = prepare(adapter)
    try:
        task.verify_inputs()
    except DamagedFile:  # `prepare` now sees that the files have changed
        task = prepare(adapter)
        task.verify_inputs()
    return task


def _write_again(adapter: DatasetAdapter, folder: Path, skip_bad: bool, report: Report) -> None:
    """Write a task that is missing, or one that is damaged and can be prepared again."""
    try:
        read_card(folder)
    except FileNotFoundError:
        pass
    except DamagedFile as damaged:
        with suppress(DamagedFile, TypeError):
            card = Card(**read_own_json(card_file(folder)))
            skip_bad = skip_bad or bool(card.skipped)
            adapter = _with_recorded_source(adapter, card)
        if not adapter.files_there and adapter.hub is None:
            raise DamagedFile(
                damaged.file,
                f"{damaged.reason}, and the raw files of {adapter.name} are not there to prepare it again",
                f"type `{adapter.prepare_command('FOLDER')}`",
            ) from None
        warnings.warn(f"{damaged}; {adapter.name} is prepared again", DamageWarning, stacklevel=2)
    _write(adapter, folder, skip_bad, report)


def _with_recorded_source(adapter: DatasetAdapter, card: Card) -> DatasetAdapter:
    """The adapter; one without a raw folder gets the folder that the card names."""
    known = adapter.folder is not None or not Path(card.source or ".missing").is_dir()
    return adapter if known else type(adapter)(Path(card.source))


def recomputed_fingerprint(adapter: DatasetAdapter, card: Card) -> str | None:
    """The fingerprint of a task's raw files as they are now; None if they are not there."""
    adapter = _with_recorded_source(adapter, card)
    if not adapter.files_there:
        return None
    skip_bad = bool(card.skipped)
    # Labels are sealed in this folder, and `doctor` deletes there what a killed process leaves.
    place = cache_root() / TASKS / f"verify-{secrets.token_hex(4)}"
    scratch = place.with_name(f"{place.name}{UNFINISHED}")
    with Lock(f"{place}.lock"):
        try:
            (scratch / LABELS).mkdir(parents=True)
            names = _label_names(adapter)
            with naming(scratch):
                card = _write_task(adapter, names, scratch, skip_bad, lambda split, rows: None)
        finally:
            remove_folder(scratch)
    return card.fingerprint


def _folder(adapter: DatasetAdapter) -> Path:
    key = sound_source_key(adapter)
    name = f"{adapter.name}-v{adapter.version}.{TASK_FORMAT}"
    return cache_root() / TASKS / (f"{name}-{key}" if key else name)


def is_of_another_format(folder: Path) -> bool:
    """Whether another version of this tool prepared the data set in a folder of the cache.

    This version never writes to that folder, so that it repairs nothing there.
    """
    prepared = TASK_NAME.fullmatch(folder.name)
    return prepared is not None and prepared["format"] != str(TASK_FORMAT)


def check_source(adapter: DatasetAdapter, card: Card) -> None:
    """Raise a UserError if the task was prepared from another folder than the adapter's."""
    source = _source(adapter)
    if adapter.folder is not None and source != card.source:
        raise UserError(
            f"data set {card.name} was prepared from {card.source}, not from {source}; "
            f"`{adapter.prepare_command(source)}` prepares that one instead"
        )


def _source(adapter: DatasetAdapter) -> str:
    if adapter.folder is not None:
        return str(adapter.folder.resolve())
    return f"{adapter.hub.repository}@{adapter.hub.revision}" if adapter.hub else ""


def _write(adapter: DatasetAdapter, folder: Path, skip_bad: bool, report: Report) -> None:
    unfinished = folder.with_name(f"{folder.name}{UNFINISHED}")
    remove_folder(unfinished)
    try:
        names = _label_names(adapter)
        (unfinished / LABELS).mkdir(parents=True)
        with naming(folder):  # Arrow's errors name no file
            card = _write_task(adapter, names, unfinished, skip_bad, report)
        facts = file_facts(unfinished, unfinished.rglob("*.arrow"))
        card = replace(card, files=facts, folder=folder.name)
        write_json(card_file(unfinished), asdict(card))
        publish_folder(unfinished, folder)
    finally:
        remove_folder(unfinished)


def _label_names(adapter: DatasetAdapter) -> list[str]:
    if not adapter.files_there and adapter.hub is None:
        raise adapter.missing("its files are not there")
    check_name(adapter.name, "data set")
    return sound_label_names(adapter)


def _write_task(
    adapter: DatasetAdapter, names: list[str], folder: Path, skip_bad: bool, report: Report
) -> Card:
    source = [adapter.name, names, *([adapter.revision] if adapter.revision else [])]
    fingerprint = hashlib.sha256(json.dumps(source).encode())
    checker = RowChecker(adapter, len(names))
    problems = checker.problems
    counts: dict[str, LabelCounts] = {}
    for split in sound_splits(adapter):
        counts[split] = _write_split(checker, split, folder, fingerprint, report)
        fingerprint.update(f"{split} {counts[split].rows.total()}".encode())
    if problems.counts and not skip_bad:
        raise problems.error(adapter.name)
    for split, count in counts.items():
        if not count.rows:
            left = f" (bad rows left out: {sum(problems.counts.values()):,})"
            problem = f"its {split} split has no rows{left if problems.counts else ''}"
            raise adapter_error(adapter, "rows", problem)
    return Card(
        name=adapter.name,
        kind=adapter.kind,
        version=adapter.version,
        label_names=names,
        rows={split: count.rows.total() for split, count in counts.items()},
        positives={split: count.positives for split, count in counts.items()},
        fingerprint=fingerprint.hexdigest()[:16],
        flips=adapter.flips,
        licence=adapter.licence,
        citation=adapter.citation,
        notes=[*sound_notes(adapter), *checker.notes(), *label_notes(names, counts)],
        source=_source(adapter),
        skipped=dict(sorted(problems.counts.items())),
        labelled={split: count.rows["labelled"] for split, count in counts.items()},
        partly_labelled={split: count.rows["partly labelled"] for split, count in counts.items()},
        unlabelled={split: count.rows["unlabelled"] for split, count in counts.items()},
        columns=asdict(sound_columns(adapter)),
    )


def _write_split(
    checker: RowChecker, split: str, folder: Path, fingerprint: Any, report: Report
) -> LabelCounts:
    """Stream one split into two Arrow files, of inputs and of labels, one batch at a time.

    Training opens the inputs only; labels and ids, which may name labels, are for the judge.
    """
    from datasets.arrow_writer import ArrowWriter

    kind, rows = checker.adapter.kind, checker.rows(split)
    back_translated = checker.adapter.back_translated and split == "train"
    features, label_features = _features(kind, back_translated)
    counts = LabelCounts(checker.label_count)
    with (
        ArrowWriter(features=features, path=str(inputs_file(folder, split))) as writer,
        ArrowWriter(features=label_features, path=str(labels_file(folder, split))) as sealed,
        np.errstate(over="ignore"),  # a number that float32 has not makes a bad row
    ):
        while batch := list(islice(rows, BATCH_ROWS[kind])):
            for row in batch:
                fingerprint.update(row.stored.content + str(row.labels).encode())
                counts.add(row.labels)
            writer.write_batch(_columns(batch, back_translated))
            sealed.write_batch(
                {"id": [row.id for row in batch], "labels": [row.labels for row in batch]}
            )
            report(split, counts.rows.total())
        writer.finalize()
        sealed.finalize()
    return counts


def _features(kind: Kind, back_translated: bool) -> tuple[Features, Features]:
    """The types of the columns of the two files, inputs and labels."""
    from datasets import Features, Image, List, Value

    inputs = {"image": Image(), "text": Value("string"), "vector": List(Value("float32"))}[kind]
    columns = {"input": inputs}
    if back_translated:
        columns["back_translation"] = Value("string")
    sealed = {"id": Value("string"), "labels": List(Value("int32"))}
    return Features(columns), Features(sealed)


def _columns(batch: list[StoredRow], back_translated: bool) -> dict[str, list[Any]]:
    """The rows of a batch as columns; a text without a back-translation stands for itself."""
    columns: dict[str, list[Any]] = {"input": [row.stored.input for row in batch]}
    if back_translated:
        columns["back_translation"] = [
            row.back_translation if row.back_translation.strip() else row.stored.input
            for row in batch
        ]
    return columns
