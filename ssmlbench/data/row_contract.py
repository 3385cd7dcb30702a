"""The rows of an adapter, checked as they come: what an adapter yields by mistake is one clear line.

Faults of single rows in the raw files are BadRows, and not judged here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ssmlbench.core.errors import UserError
from ssmlbench.core.paths import near
from ssmlbench.data.adapter import BadRow, DatasetAdapter, Kind, Row


def sound_label_names(adapter: DatasetAdapter) -> list[str]:
    """The adapter's label names; a UserError if they are not a list of texts."""
    try:
        names = adapter.label_names()
    except Exception as error:
        raise _raised(adapter, "label_names", error) from error
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise _wrong(
            adapter,
            "label_names",
            f"label_names returned {_shown(names)}; expected a list of texts",
        )
    for name in names:
        if not isinstance(name, str):
            raise _wrong(
                adapter,
                "label_names",
                f"label_names returned {_shown(name)} as a name; expected a text",
            )
    return list(names)


def sound_rows(adapter: DatasetAdapter, split: str, labels: int) -> Iterator[Row | BadRow]:
    """Yield the adapter's rows of a split; a UserError for anything that is not a row of its kind."""
    number = 0
    try:
        rows = adapter.rows(split)
        if rows is None:
            raise _wrong(
                adapter, "rows", "rows returned nothing; expected `yield Row(input, labels)`"
            )
        for number, row in enumerate(rows, start=1):
            if not isinstance(row, BadRow) and (fault := _fault(row, adapter.kind, labels)):
                where = getattr(row, "where", "") or f"{split} row {number}"
                raise _wrong(adapter, "rows", f"{where}: {fault}")
            yield row
    except (UserError, GeneratorExit):
        raise
    except Exception as error:
        raise _raised(adapter, "rows", error, f"after {split} row {number}: ") from error


def _fault(row: object, kind: Kind, labels: int) -> str:
    """What is wrong with something that an adapter yielded; empty for a row."""
    if not isinstance(row, Row):
        return f"rows yielded {_shown(row)}; expected Row(input, labels)"
    unknown = _label_fault(row.labels, labels) if row.labels is not None else ""
    return unknown or _input_fault(row.input, kind)


def _label_fault(given: Any, labels: int) -> str:
    expected = "expected the positions of the positive labels, e.g. (0, 3)"
    if isinstance(given, str) or not isinstance(given, Sequence | set | frozenset | np.ndarray):
        return f"labels is {_shown(given)}; {expected}"
    for position in given:
        if isinstance(position, str):
            return (
                f"labels has the name {position!r}; {expected}: label_names().index({position!r})"
            )
        if isinstance(position, bool | np.bool_) or int(position) != position:
            return f"labels has {_shown(position)}; {expected}"
    if labels > 2 and len(given) == labels and {int(k) for k in given} <= {0, 1}:
        return f"labels is a row of {labels} zeros and ones; {expected}"
    return ""


def _input_fault(value: Any, kind: Kind) -> str:
    if kind == "text":
        return "" if isinstance(value, str) else f"input is {_shown(value)}; expected a text"
    if kind == "vector":
        try:
            dimensions = np.asarray(value, dtype=np.float32).ndim
        except (TypeError, ValueError):
            dimensions = -1
        return "" if dimensions == 1 else f"input is {_shown(value)}; expected a vector of numbers"
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


def _wrong(adapter: DatasetAdapter, function: str, text: str) -> UserError:
    return UserError(f"{_place(adapter, function)}data set {adapter.name}: {text}")


def _place(adapter: DatasetAdapter, function: str) -> str:
    """`file:line: ` of the adapter's function, if it has a file."""
    try:
        file = Path(inspect.getfile(type(adapter)))
        line = inspect.getsourcelines(getattr(type(adapter), function))[1]
    except (OSError, TypeError):
        return ""
    return f"{near(file)}:{line}: "


def _raised(adapter: DatasetAdapter, function: str, error: Exception, when: str = "") -> Exception:
    """An exception of the adapter's own code as a UserError with its line; others as they are."""
    if isinstance(error, UserError):
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
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return UserError(f"{near(Path(file))}:{line}: data set {adapter.name}: {when}{text}")
