"""The source of a data set's tables: files in a folder, or one file."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path

from ssmlbench.core.errors import UserError
from ssmlbench.data.listed_names import read_names
from ssmlbench.data.records import TABLES, Table, read_table
from ssmlbench.data.text_files import bare_name, file_ending
from ssmlbench.data.unread import unread_hint, unread_name
from ssmlbench.data.user_files import PARTS, SPLIT_NAMES, label_file

PLAIN = (".txt", ".dat", ".data")
"""Files that may hold rows, or the names of rows, in a form of their own."""
TABLE_NAMES = ("labels", "metadata", "annotations", "data")
"""Names of the table of a folder that has other tables too."""


class TableSource(ABC):
    """The tables of a user's data set."""

    single: bool  # all rows are in the same tables, and a split column may tell them apart

    @abstractmethod
    def tables(self, part: str) -> list[Table]:
        """The tables in which rows of a part may be, in order."""

    @abstractmethod
    def files(self) -> list[Path]:
        """Every file that is read."""

    @property
    @abstractmethod
    def listed(self) -> list[str]:
        """The names of the labels in labels.txt; empty if there is no such file."""

    def unread(self) -> list[str]:
        """The names of tables beside those that are read: of no part, or of one that has another name."""
        return []

    @property
    def first(self) -> Table:
        """The first training table, whose columns all others must have."""
        return self.tables("train")[0]


class FileSource(TableSource):
    """Files: `train.csv`, `test.csv` and so on in a folder, or one file with all rows."""

    def __init__(self, home: Path):
        self.home = home
        self.folder = table_folder(home) if home.is_dir() else home.parent
        self.only = only_table(self.folder) if home.is_dir() else home
        if home.is_dir() and part_tables(self.folder, "train"):
            self.only = None
        for part in PARTS:
            _check_files(part_files(self.folder, part))
            if home.is_dir():
                _check_places(self.folder, part)
                check_unread(self.folder, part_name(part), part_tables(self.folder, part))
        others = any(part_tables(self.folder, part) for part in PARTS[1:])
        self.single = self.only is not None and not (home.is_dir() and others)

    def tables(self, part: str) -> list[Table]:
        """The tables of the part's files."""
        return [read_table(file) for file in self._files(part)]

    def _files(self, part: str) -> list[Path]:
        if self.only is not None and (self.single or part == "train"):
            return [self.only]
        return part_tables(self.folder, part)

    def files(self) -> list[Path]:
        """The tables, and labels.txt."""
        tables = [file for part in PARTS for file in self._files(part)]
        listed = label_file(self._place_of_labels)
        return list(dict.fromkeys([*tables, *([listed] if listed else [])]))

    def unread(self) -> list[str]:
        """The names of tables in the folder of which no row is read."""
        if not self.home.is_dir():
            return []
        read = {file for part in (*PARTS, "validation") for file in self._files(part)}
        there = (file for file in sorted(self.folder.iterdir()) if file_ending(file) in TABLES)
        return [file.name for file in there if file not in read and file_ending(file) != ".json"]

    @property
    def _place_of_labels(self) -> Path:
        """The folder of labels.txt: that of the tables, or else the data folder."""
        return self.folder if label_file(self.folder) or not self.home.is_dir() else self.home

    @cached_property
    def listed(self) -> list[str]:
        """The lines of labels.txt."""
        return read_names(self._place_of_labels)


def table_folder(folder: Path) -> Path:
    """The folder itself, or `data` in it, where repositories of the hub have their tables."""
    inner = folder / "data"
    here = part_tables(folder, "train") or only_table(folder)
    return inner if inner.is_dir() and not here and part_files(inner, "train") else folder


def part_tables(folder: Path, part: str) -> list[Path]:
    """The files of a part, or the only table in the folder of that name: `train/metadata.csv`."""
    inner = (only_table(sub) for sub in part_folders(folder, part))
    return part_files(folder, part) or [table for table in inner if table is not None]


def only_table(folder: Path) -> Path | None:
    """The table in a folder that is not called after a part; of several, the one of a usual name."""
    tables = [
        file
        for file in sorted(folder.iterdir())
        if file_ending(file) in TABLES
        and file_ending(file) != ".json"
        and not any(file in part_files(folder, part) for part in SPLIT_NAMES)
    ]
    usual = [file for file in tables if bare_name(file).lower() in TABLE_NAMES]
    chosen = usual or tables
    return chosen[0] if len(chosen) == 1 else None


def _check_files(files: list[Path]) -> None:
    """Raise a UserError for files of a part that may be copies of one another, or lack a shard."""
    whole = [file for file in files if re.fullmatch(r"[A-Za-z]+", bare_name(file))]
    if whole and len(files) > 1:
        other = next(file for file in files if file != whole[0])
        raise UserError(
            f"data set {whole[0].parent}: {whole[0].name} or {other.name}? Move one away; shards are "
            f"numbered: {bare_name(whole[0])}-0{file_ending(whole[0])}, {bare_name(whole[0])}-1…"
        )
    if copy := _copies(files):
        raise UserError(
            f"data set {files[0].parent}: {copy[0].name} or {copy[1].name}? Move one away, or number "
            "the shards"
        )
    _check_count(files)


def _check_places(folder: Path, part: str) -> None:
    """Raise a UserError if the tables of a part lie in two places, of which one would not be read."""
    places = [part_files(folder, part), part_files(folder / "data", part)]
    inner = (only_table(sub) for sub in part_folders(folder, part))
    places += [[table] for table in inner if table is not None]
    found = [files[0] for files in places if files]
    if len(found) > 1:
        first, second = (file.relative_to(folder) for file in found[:2])
        raise UserError(f"data set {folder}: {first} or {second}? Move one away")


def check_unread(folder: Path, names: re.Pattern[str], read: list[Path]) -> None:
    """Raise a UserError for a table of a part in a format that is not read: its rows would be missing.

    names: how the files of the part are called. read: those that are read; one of the same name is the
    same table.
    """
    known = {bare_name(file).lower() for file in read}
    for file in sorted(folder.iterdir()):
        name = unread_name(file).lower()
        if file.suffix.lower() in PLAIN and file.is_file():
            name = file.stem.lower()
        if name not in known and names.fullmatch(name):
            hint = unread_hint(file) or "; write them as a table"
            raise UserError(
                f"data set {folder}: {file.name} has rows that are not read{hint}, or move it away"
            )


def _copies(files: list[Path]) -> tuple[Path, Path] | None:
    """Two files of one number: in two formats, or one with more than the number in its name."""
    names = {file: re.sub(r"[-_.]", "-", bare_name(file)).lower() for file in files}
    first = {name: file for file, name in reversed(names.items())}
    for file, name in names.items():
        starts = (name[:k] for k in range(len(name)) if not name[k].isdigit())
        for start in (name, *starts):
            if first.get(start, file) != file:
                return first[start], file
    return None


def _check_count(files: list[Path]) -> None:
    """Raise a UserError unless shards that are called `3-of-5` are all there."""
    numbered = [(f, m) for f in files if (m := re.search(r"(\d+)-of-(\d+)$", bare_name(f)))]
    if not numbered:
        return
    count = int(numbered[0][1][2])
    found = {int(match[1]) for _, match in numbered if int(match[2]) == count}
    complete = found in ({*range(count)}, {*range(1, count + 1)})
    if len(numbered) < len(files) or len(found) < len(files) or not complete:
        raise UserError(
            f"data set {files[0].parent}: {files[0].name} is one of {count} shards, and there are "
            f"{len(found)} of them among {len(files)} files; add the missing ones, move others away"
        )


def part_files(folder: Path, part: str) -> list[Path]:
    """`train.csv`, or shards such as `train-00000-of-00002.parquet`, in order."""
    names, there = part_name(part), folder.iterdir() if folder.is_dir() else ()
    return sorted(
        file for file in there if file_ending(file) in TABLES and names.fullmatch(bare_name(file))
    )


def part_name(part: str) -> re.Pattern[str]:
    """What the file of a part is called without its ending: `train`, or `train-00000-of-00002`."""
    return re.compile(rf"({'|'.join(SPLIT_NAMES[part])})([-_.]\d.*)?", re.IGNORECASE)


def part_folders(folder: Path, part: str) -> list[Path]:
    """The folders in a folder that are called after a part, in upper or lower case."""
    order = SPLIT_NAMES[part]
    found = (sub for sub in folder.iterdir() if sub.name.lower() in order and sub.is_dir())
    return sorted(found, key=lambda sub: (order.index(sub.name.lower()), sub.name))
