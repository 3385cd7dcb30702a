"""The contract of every data set, checked on its first rows: by `ssmlbench check` and the tests."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from ssmlbench.checks.statements import Statement
from ssmlbench.core.errors import NO_FAULT
from ssmlbench.data import SPLITS, BadRow, DatasetAdapter, Row
from ssmlbench.data.row_checks import RowChecker
from ssmlbench.data.row_contract import (
    adapter_error,
    sound_columns,
    sound_label_names,
    sound_notes,
    sound_rows,
    sound_source_key,
    sound_splits,
)
from ssmlbench.plugins.contract import check_contract

FIRST_ROWS = 200


def first_rows(cls: type[DatasetAdapter], split: str) -> list[Row | BadRow]:
    """The first rows of a split."""
    adapter = cls()
    return list(islice(sound_rows(adapter, split, len(sound_label_names(adapter))), FIRST_ROWS))


def names_labels(cls: type[DatasetAdapter]) -> None:
    """Check that there are labels with unique names."""
    adapter = cls()
    if not adapter.files_there and adapter.hub is None:
        raise adapter.missing("its files are not there")
    sound_label_names(adapter)


def yields_rows(cls: type[DatasetAdapter], split: str) -> None:
    """Check that a split has rows, and that each of them is valid."""
    adapter = cls()
    rows = first_rows(cls, split)
    if not rows:
        raise adapter_error(adapter, "rows", f"its {split} split has no rows")
    checker = RowChecker(adapter, len(sound_label_names(adapter)))
    for number, row in enumerate(rows, start=1):
        checked = checker.checked(row, split, row.where or f"{split} row {number}")
        if isinstance(checked, BadRow):
            raise adapter_error(adapter, "rows", f"{checked.where}: {checked.reason}")
        if isinstance(row, Row) and row.id:
            checker.ids.add(row.id)


def repeats_itself(cls: type[DatasetAdapter], split: str) -> None:
    """Check that a second reading gives the same rows."""
    for number, pair in enumerate(
        zip(first_rows(cls, split), first_rows(cls, split), strict=False), start=1
    ):
        if not _same(*pair):
            problem = f"{split} row {number} differs when it is read a second time"
            raise adapter_error(cls(), "rows", problem)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, BadRow) or isinstance(b, BadRow):
        return bool(a == b)
    return list(a.labels or ()) == list(b.labels or ()) and np.array_equal(a.input, b.input)


def _splits(cls: type[DatasetAdapter]) -> tuple[str, ...]:
    """The declared splits; all, if `splits` raises: reading them shows the error."""
    try:
        return sound_splits(cls())
    except NO_FAULT:
        raise
    except BaseException:  # a plugin may raise anything
        return SPLITS


def has_splits(cls: type[DatasetAdapter]) -> None:
    """Check the splits, and the other declarations that are computed."""
    adapter = cls()
    for check in (sound_splits, sound_source_key, sound_notes, sound_columns):
        check(adapter)


def dataset_statements(cls: type[DatasetAdapter]) -> Iterator[Statement]:
    """Yield every statement about a data set, with the check that raises if it is false."""
    yield Statement(
        "it declares name, kind and default encoder", partial(check_contract, cls), "declares"
    )
    yield Statement("label names are distinct", partial(names_labels, cls), "names", ("declares",))
    yield Statement(
        "it has training rows, and test rows if any",
        partial(has_splits, cls),
        "splits",
        ("declares",),
    )
    needs = ("declares", "names", "splits")
    for split in _splits(cls):
        yield Statement(
            "it yields rows of its kind, with the positions of their labels",
            partial(yields_rows, cls, split),
            "rows",
            needs,
            split,
        )
        yield Statement(
            "a second reading gives the same rows",
            partial(repeats_itself, cls, split),
            "repeats",
            (*needs, "rows"),
            split,
        )
