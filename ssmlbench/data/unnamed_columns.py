"""Columns without a name: the row numbers that pandas writes, or content that would be left out."""

from __future__ import annotations

from itertools import islice

from ssmlbench.core.errors import UserError
from ssmlbench.data.label_cells import flag
from ssmlbench.data.plain_numbers import is_number, plain_float
from ssmlbench.data.records import Table

INDEX_COLUMNS = ("", "Unnamed: 0", "__index_level_0__")
"""The names of pandas' column of row numbers, which holds neither inputs nor labels."""
LOOKED_AT, FEWEST = 100, 3
"""Rows that are looked at, and the fewest that tell 0 and 1 from row numbers."""


def check_unnamed(table: Table) -> None:
    """Raise a UserError for a column without a name that may hold a label or an input.

    Such are numbers elsewhere than in the first column, where pandas writes its row numbers (the last
    one of a Parquet file), fractions, and 0 and 1 over and over.
    """
    names = list(table.columns)
    unnamed = [name for name in INDEX_COLUMNS if name in names]
    for name in unnamed:
        rows = islice(table.records((name,)), LOOKED_AT)
        cells = [record.get(name) for _, record in rows if isinstance(record, dict)]
        values = [plain_float(cell) for cell in cells if is_number(cell)]
        placed = names[0] == name or name == INDEX_COLUMNS[-1]
        fractions = any(not value.is_integer() for value in values)
        flags = len(values) >= FEWEST and all(isinstance(flag(value), int) for value in values)
        if values and (not placed or fractions or flags):
            raise UserError(
                f"{table.file}: column {names.index(name) + 1} has numbers and no name "
                f"({name or 'an empty one'}); give it a name, or take it out"
            )
