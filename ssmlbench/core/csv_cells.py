"""CSV files that are safe to open in a spreadsheet program: no cell can be taken for a formula.

Every CSV file of this tool is written here, and reading it gives the same texts back.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, TextIO

from ssmlbench.core.errors import UserError

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""The first characters of a cell that spreadsheet programs evaluate."""
CRLF = "\r\n"
IGNORED = "' "
"""Characters before a formula that some programs drop when they open the file."""
MOST_READ = 100_000
"""Characters of a line that are read to recognise a table: fewer than csv takes for one cell."""


def spreadsheet_cell(text: str) -> str:
    """The text of a CSV cell, with a quote in front if a spreadsheet would take it for a formula."""
    return f"'{text}" if is_formula(text) else text


def cell_text(cell: str) -> str:
    """The text that `spreadsheet_cell` was given."""
    return cell[1:] if cell.startswith("'") and is_formula(cell[1:]) else cell


def is_formula(text: str) -> bool:
    """Whether a spreadsheet program might evaluate a cell with this text; numbers are not formulas."""
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
        # csv quotes cells with the characters of its own line end only; readers know \r and \n.
        csv.writer(line, lineterminator=CRLF).writerow(safe)
        self._out.write(line.getvalue().removesuffix(CRLF) + self._line_end)

    def records(self, records: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> None:
        """Write the names of the columns, then a row for each record; a missing value is empty."""
        columns = list(columns)
        self.row(columns)
        for record in records:
            self.row(record.get(column, "") for column in columns)


def check_other_table(file: Path, columns: AbstractSet[str], option: str) -> None:
    """Raise a UserError if a command would replace a file that it did not write; option: names another.

    columns: by which the command's own tables are recognised. An empty file may be replaced.
    """
    if not file.is_file() or not file.stat().st_size:
        return
    with file.open(encoding="utf-8", errors="replace", newline="") as opened:
        lines = iter(lambda: opened.readline(MOST_READ), "")
        header = next((line for line in lines if not line.startswith("#")), "")
    if not columns <= set(next(csv.reader([header]), [])):
        raise UserError(
            f"{file} is there, and this command did not write it; choose another place with {option}"
        )
