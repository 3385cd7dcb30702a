"""The names that a format itself gives to the values of a column: Hugging Face's ClassLabel.

A value is then a number, the place of its name.
"""

from __future__ import annotations

from collections.abc import Sequence

from ssmlbench.core.errors import UserError
from ssmlbench.data.label_cells import NO, YES
from ssmlbench.data.records import Table


def check_same_names(table: Table, first: Table, column: str, listed: Sequence[str] | None) -> None:
    """Raise a UserError if two tables give the numbers of a column different names.

    Also for labels, if only the second one names them: ids of the first may count in another way.
    listed: of the column of labels, the names in labels.txt; None for other columns.
    """
    is_label = listed is not None
    here, there = table.label_names(column), first.label_names(column) or listed
    if here and not there and is_label:
        raise UserError(
            f"{table.file}: it names the ids of column {column!r} ({', '.join(here[:3])}…), and "
            f"{first.name} does not; write the names in all files, or ids and a labels.txt"
        )
    if here and there and list(here) != list(there):
        k = next(
            k for k in range(max(len(here), len(there))) if here[k : k + 1] != there[k : k + 1]
        )
        names = [(named[k] if k < len(named) else "no label") for named in (here, there)]
        what = f"label {k}" if is_label else f"{k} in column {column!r}"
        raise UserError(
            f"{table.file}: {what} is {names[0]}, in {first.name} it is {names[1]}; give both the same "
            "names in the same order, or write names instead of ids"
        )


def check_meaning(table: Table, column: str) -> None:
    """Raise a UserError if the file itself names the values of a 0/1 column, and 0 means yes."""
    names = [name.strip().lower() for name in table.label_names(column) or ()]
    if len(names) == 2 and (_means_yes(names[0], column) or _means_no(names[1], column)):
        raise UserError(
            f"{table.file}: column {column!r} calls 0 {names[0]!r} and 1 {names[1]!r}; write 1 where the "
            "label applies"
        )


def _means_yes(name: str, column: str) -> bool:
    return name in {*YES, "true", "1", column.lower()}


def _means_no(name: str, column: str) -> bool:
    return name in {*NO, "false", "0"} or name.startswith(("not ", "not_", "non-"))
