"""Advice on files of formats that are not read."""

from __future__ import annotations

from pathlib import Path

from ssmlbench.data.packed_files import PACKINGS
from ssmlbench.data.text_files import PACKABLE, file_ending

PACKED = (*PACKINGS, ".zst", ".tar", ".tgz", ".7z")
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods")
OTHER_TABLES = (".feather", ".arrow", ".pkl", ".pickle", ".h5", ".hdf5", ".dta", ".sav", ".orc")
UNPACKED = (*PACKABLE, ".parquet", ".arff", ".svm", ".libsvm", ".svmlight", ".npy", ".npz")
"""The endings of tables and vectors, before that of their packing."""


def unread_name(file: Path) -> str:
    """The name without its endings of a table that is not read: `test` of `test.xlsx` or `test.csv.zst`.

    Empty for other files; an archive without the ending of a table in its name may hold images.
    """
    ending = file.suffix.lower()
    if ending in (*SPREADSHEETS, *OTHER_TABLES):
        return file.stem
    inner = Path(file.stem)
    inner = Path(inner.stem) if inner.suffix.lower() == ".tar" else inner
    packed = ending in PACKED and file_ending(file) == ending
    return inner.stem if packed and inner.suffix.lower() in UNPACKED else ""


def unread_hint(file: Path) -> str:
    """Advice on a file that is not read, as the end of a message; empty if there is none."""
    ending = file.suffix.lower()
    if ending in PACKED:
        single = ending in PACKINGS and "." not in file.stem
        named = f", or call it {file.stem}.csv{ending} if it is a CSV" if single else ""
        return f"; {file.name} is packed: unpack it first{named}"
    if ending in SPREADSHEETS:
        return f"; save the sheet of {file.name} as CSV (in pandas: read_excel, then to_csv)"
    if ending in OTHER_TABLES:
        return f"; save {file.name} as Parquet (in pandas: to_parquet)"
    return ""
