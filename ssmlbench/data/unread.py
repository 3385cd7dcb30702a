"""Advice on files of formats that are not read."""

from __future__ import annotations

from pathlib import Path

from ssmlbench.data.text_files import PACKINGS

PACKED = (*PACKINGS, ".zst", ".tar", ".tgz", ".7z")
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods")
OTHER_TABLES = (".feather", ".pkl", ".pickle", ".h5", ".hdf5", ".dta", ".sav", ".orc")


def unread_hint(file: Path) -> str:
    """Advice on a file that is not read, as the end of a message; empty if there is none."""
    ending = file.suffix.lower()
    if ending in PACKED:
        named = f", or call it {file.stem}.csv{ending} if it is a CSV" if ending in PACKINGS else ""
        return f"; {file.name} is packed: unpack it first{named}"
    if ending in SPREADSHEETS:
        return f"; save the sheet of {file.name} as CSV (in pandas: read_excel, then to_csv)"
    if ending in OTHER_TABLES:
        return f"; save {file.name} as Parquet (in pandas: to_parquet)"
    return ""
