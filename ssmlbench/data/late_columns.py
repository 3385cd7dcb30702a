"""Columns that the first training table leaves empty, and that may be labels all the same."""

from __future__ import annotations

from collections.abc import Iterable

from ssmlbench.core.errors import UserError
from ssmlbench.data.columns import Roles, first_values
from ssmlbench.data.label_cells import flag, is_minus_one
from ssmlbench.data.records import Table


def check_late_flags(first: Table, others: Iterable[Table], roles: Roles) -> None:
    """Raise a UserError for a column beside 0/1 columns that has only -1, or 0 and 1 in another table."""
    used = {*roles.inputs, *roles.flags, *roles.optional}
    rest = [column for column in first.columns if column not in used]
    known = first_values(first, rest) if rest else {}
    empty = [column for column in rest if column not in known]
    for table in others if empty else ():
        there = [column for column in empty if column in table.columns or not table.strict]
        for column, value in first_values(table, there).items():
            if isinstance(flag(value), int):
                raise UserError(
                    f"{table.file}: column {column!r} has 0 and 1, and none in {first.name}; {_REMEDY}"
                )
    for _, record in first.records(tuple(empty)) if empty else ():
        cells = record if isinstance(record, dict) else {}
        if column := next((c for c in empty if is_minus_one(cells.get(c))), ""):
            raise UserError(f"{first.file}: column {column!r} has -1, and never 0 or 1; {_REMEDY}")


_REMEDY = "name the columns of labels with --label-column, this one too if it is a label"
