"""Cells of a CSV file: none is a formula in a spreadsheet, and every text is read back."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import ssmlbench
from ssmlbench.core.csv_cells import CsvWriter, cell_text, spreadsheet_cell

FORMULAS = [
    "=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1+1", " =1", "'=1",
    "''+A1",
]  # fmt: skip


@pytest.mark.parametrize("text", FORMULAS)
def test_a_cell_is_never_a_formula(text: str) -> None:
    assert spreadsheet_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["-0.5", "+3", "cap", "", "-1e-3", "-inf", "'", "it's", "a=b"])
def test_numbers_and_names_stay_as_they_are(text: str) -> None:
    assert spreadsheet_cell(text) == text


@given(st.text() | st.text(alphabet="'= +-@1a"))
@example("'=1")
def test_every_text_is_read_back(text: str) -> None:
    assert cell_text(spreadsheet_cell(text)) == text


def test_a_table_is_read_back() -> None:
    records = [{name: name, "a": 0.5} for name in FORMULAS]
    columns = [*FORMULAS, "a", "b"]
    out = io.StringIO(newline="")
    CsvWriter(out).records(records, columns)
    first, *rows = csv.reader(io.StringIO(out.getvalue(), newline=""))
    assert [cell_text(cell) for cell in first] == columns
    for record, row in zip(records, rows, strict=True):
        cells = dict(zip(columns, map(cell_text, row), strict=True))
        assert cells == {column: str(record.get(column, "")) for column in columns}


def test_no_other_module_writes_csv() -> None:
    root = Path(ssmlbench.__file__).parent
    writes = re.compile(r"csv\.(Dict)?[wW]riter\(|\.to_csv\(")
    found = {
        file.relative_to(root).as_posix()
        for file in root.rglob("*.py")
        if writes.search(file.read_text(encoding="utf-8"))
    }
    assert found == {"core/csv_cells.py", "runs/result.py"}, "use CsvWriter"
