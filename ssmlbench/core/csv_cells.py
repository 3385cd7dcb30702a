"""CSV files that a person may open: no cell is a formula there, and reading gives the text back.

Every CSV file of this tool is written through here.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""How a cell starts that a spreadsheet program calculates."""
CRLF = "\r\n"
IGNORED = "' "
"""What may stand before a formula: some programs drop it when they open the file."""


def spreadsheet_cell(text: str) -> str:
    """The text for a CSV cell: what a spreadsheet would take for a formula gets a quote in front."""
    return f"'{text}" if is_formula(text) else text


def cell_text(cell: str) -> str:
    """The text that `spreadsheet_cell` was given."""
    return cell[1:] if cell.startswith("'") and is_formula(cell[1:]) else cell


def is_formula(text: str) -> bool:
    """Whether a spreadsheet program might calculate a cell with this text; numbers are none."""
    if not text.lstrip(IGNORED).startswith(FORMULA):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False


class CsvWriter:
    """Writes rows of cells; texts among them go through `spreadsheet_cell`."""

    def __init__(self, out: TextIO, line_end: str = "\n"):
        self._out = out
        self._line_end = line_end

    def row(self, cells: Iterable[Any]) -> None:
        """Write one row."""
        line = io.StringIO(newline="")
        safe = (spreadsheet_cell(cell) if isinstance(cell, str) else cell for cell in cells)
        # csv puts only the characters of its own line end in quotes, and readers know two.
        csv.writer(line, lineterminator=CRLF).writerow(safe)
        self._out.write(line.getvalue().removesuffix(CRLF) + self._line_end)

    def records(self, records: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> None:
        """Write the names of the columns, then a row for each record; what it lacks is empty."""
        columns = list(columns)
        self.row(columns)
        for record in records:
            self.row(record.get(column, "") for column in columns)
