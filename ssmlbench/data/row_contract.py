"""Checks the rows that an adapter yields: a mistake of the adapter is an error of one line.

Faults of single rows in the raw files are BadRows, and are not checked here.
"""

from __future__ import annotations

import inspect
import operator
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ssmlbench.core.errors import DISK_ERRORS, NO_FAULT, UserError
from ssmlbench.core.names import check_label
from ssmlbench.core.paths import near
from ssmlbench.core.plain_text import error_text
from ssmlbench.core.registry import written_at
from ssmlbench.data.adapter import SPLITS, BadRow, DatasetAdapter, InputColumns, Kind, Row

KEY = re.compile(r"[\w-]{1,100}")
"""A key of a source, which is part of the name of a folder in the cache."""


def sound_splits(adapter: DatasetAdapter) -> tuple[str, ...]:
    """The adapter's splits; a UserError for others than "train", or "train" and "test": they name files."""
    splits: object = adapter.splits()
    if not isinstance(splits, tuple | list) or tuple(splits) not in (SPLITS, SPLITS[:1]):
        expected = f"{SPLITS!r} or {SPLITS[:1]!r}"
        problem = f"splits returned {_shown(splits)}; expected {expected}"
        raise adapter_error(adapter, "splits", problem)
    return tuple(splits)


def sound_source_key(adapter: DatasetAdapter) -> str:
    """The adapter's key of its source; a UserError unless it can be the end of a folder's name."""
    key: object = adapter.source_key()
    if not isinstance(key, str) or (key and not KEY.fullmatch(key)):
        problem = (
            f"source_key returned {_shown(key)}; expected letters, digits, _ and -, or nothing"
        )
        raise adapter_error(adapter, "source_key", problem)
    return key


def sound_notes(adapter: DatasetAdapter) -> list[str]:
    """The adapter's notes for the card; a UserError if they are not texts."""
    notes: object = adapter.card_notes()
    if not isinstance(notes, tuple | list) or not all(isinstance(note, str) for note in notes):
        problem = f"card_notes returned {_shown(notes)}; expected a list of texts"
        raise adapter_error(adapter, "card_notes", problem)
    return list(notes)


def sound_columns(adapter: DatasetAdapter) -> InputColumns:
    """The adapter's columns; a UserError if they are not `InputColumns`."""
    columns: object = adapter.columns()
    if not isinstance(columns, InputColumns):
        problem = f"columns returned {_shown(columns)}; expected InputColumns(…)"
        raise adapter_error(adapter, "columns", problem)
    return columns


def sound_label_names(adapter: DatasetAdapter) -> list[str]:
    """The adapter's label names; a UserError if they are not a list of texts."""
    try:
        names = adapter.label_names()
    except NO_FAULT:
        raise
    except BaseException as error:
        raise _raised(adapter, error) from error
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise adapter_error(
            adapter,
            "label_names",
            f"label_names returned {_shown(names)}; expected a list of texts",
        )
    for name in names:
        if not isinstance(name, str):
            raise adapter_error(
                adapter,
                "label_names",
                f"label_names returned {_shown(name)} as a name; expected a text",
            )
        check_label(name, f"{written_at(type(adapter), 'label_names')}data set {adapter.name}")
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice or not names:
        problem = f"label {twice[0]!r} occurs twice" if twice else "there are no labels"
        raise adapter_error(adapter, "label_names", problem)
    if same := _same_to_the_eye(names):
        problem = f"labels {same[0]!a} and {same[1]!a} look the same; write them in one form"
        raise adapter_error(adapter, "label_names", problem)
    return list(names)


def _same_to_the_eye(names: Sequence[str]) -> tuple[str, str] | None:
    """Two names that differ only in their Unicode form, in kinds of spaces or in invisible characters.

    Such names are one label that two programs have written.
    """
    seen: dict[str, str] = {}
    for name in names:
        plain = name
        if not name.isascii():
            visible = (c for c in name if unicodedata.category(c) != "Cf")
            plain = unicodedata.normalize("NFC", "".join(visible))
        if (first := seen.setdefault(" ".join(plain.split()), name)) != name:
            return first, name
    return None


def sound_rows(adapter: DatasetAdapter, split: str, labels: int) -> Iterator[Row | BadRow]:
    """Yield the adapter's rows of a split; a UserError for anything that is not a row of its kind."""
    number = 0
    try:
        rows = adapter.rows(split)
        if isinstance(rows, str) or not isinstance(rows, Iterable):
            returned = "nothing" if rows is None else _shown(rows)
            raise adapter_error(
                adapter, "rows", f"rows returned {returned}; expected `yield Row(input, labels)`"
            )
        for number, row in enumerate(rows, start=1):
            if not isinstance(row, BadRow) and (fault := _fault(row, adapter.kind, labels)):
                where = getattr(row, "where", "") or f"{split} row {number}"
                raise adapter_error(adapter, "rows", f"{where}: {fault}")
            yield row
    except (UserError, *NO_FAULT):
        raise
    except BaseException as error:
        raise _raised(adapter, error, f"after {split} row {number}: ") from error


def _fault(row: object, kind: Kind, labels: int) -> str:
    """The fault of a value that an adapter yielded; empty for a valid row."""
    if not isinstance(row, Row):
        return f"rows yielded {_shown(row)}; expected Row(input, labels)"
    for name in ("id", "where", "back_translation"):
        if not isinstance(value := getattr(row, name), str):
            return f"{name} is {_shown(value)}; expected a text"
    known = _label_fault(row.labels, labels) if row.labels is not None else ""
    return known or _position_fault("unknown", row.unknown) or _input_fault(row.input, kind)


EXPECTED = {
    "labels": "expected the positions of the positive labels, e.g. (0, 3)",
    "unknown": "expected the positions of the labels that are not known, e.g. (0, 3)",
}


def _label_fault(given: Any, labels: int) -> str:
    if fault := _position_fault("labels", given):
        return fault
    if labels > 2 and len(given) == labels and {int(k) for k in given} <= {0, 1}:
        return f"labels is a row of {labels} zeros and ones; {EXPECTED['labels']}"
    return ""


def _position_fault(field: str, given: Any) -> str:
    """The fault of the positions in a field of a row; empty if they are valid."""
    expected = EXPECTED[field]
    several = isinstance(given, Sequence | set | frozenset) or (
        isinstance(given, np.ndarray) and given.ndim == 1
    )
    if isinstance(given, str) or not several:
        return f"{field} is {_shown(given)}; {expected}"
    for position in given:
        if isinstance(position, str):
            return (
                f"{field} has the name {position!r}; {expected}: label_names().index({position!r})"
            )
        if not _is_whole(position):
            return f"{field} has {_shown(position)}; {expected}"
    return ""


def _is_whole(number: object) -> bool:
    """Whether it is a whole number; 3.0 is one, True is none."""
    if isinstance(number, bool | np.bool_):
        return False
    if isinstance(number, float | np.floating):
        return float(number).is_integer()
    try:
        operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def _input_fault(value: Any, kind: Kind) -> str:
    if kind == "text":
        return "" if isinstance(value, str) else f"input is {_shown(value)}; expected a text"
    if kind == "vector":
        try:
            given = np.asarray(value)
            shape = () if given.dtype.kind == "c" else given.astype(np.float32, copy=False).shape
        except Exception:  # a library's own kind of array may raise anything
            shape = ()
        sound = len(shape) == 1 and shape[0] > 0
        return "" if sound else f"input is {_shown(value)}; expected a vector of numbers"
    if isinstance(value, Path | bytes):
        return ""
    if isinstance(value, np.ndarray):
        sound = value.dtype == np.uint8 and (value.ndim == 2 or value.shape[2:] in ((1,), (3,)))
        return "" if sound else f"input is {_shown(value)}; expected uint8, H × W or H × W × 3"
    hint = ": write Path(…)" if isinstance(value, str) else ""
    return f"input is {_shown(value)}; expected a Path, the bytes of a file or an array{hint}"


def _shown(value: Any) -> str:
    """A value, short enough for one line."""
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} with shape {value.shape}"
    text = repr(value)
    return f"{text if len(text) < 40 else f'{text[:37]}…'} ({type(value).__name__})"


def adapter_error(adapter: DatasetAdapter, function: str, text: str) -> UserError:
    """The error for what a function of the adapter gives, with the function's file and line."""
    return UserError(f"{written_at(type(adapter), function)}data set {adapter.name}: {text}")


def _raised(adapter: DatasetAdapter, error: BaseException, when: str = "") -> BaseException:
    """An exception of the adapter's own code as a UserError with its line; others as they are."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        error.filename = error.filename or adapter.folder
        return error
    try:
        file = inspect.getfile(type(adapter))
    except (OSError, TypeError):
        return error
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    if not line:
        return error
    text = f"{type(error).__name__}: {' '.join(error_text(error).split())}"
    return UserError(f"{near(Path(file))}:{line}: data set {adapter.name}: {when}{text}")
