"""Whether a folder of own data has rows in another form than the one that is read.

A reader sees the files of its own form: images in `test/` beside `train.csv`, or `test.csv` beside
`train.npz`, would be left out without a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from posixpath import normpath

from ssmlbench.core.errors import UserError
from ssmlbench.core.paths import paths_below
from ssmlbench.data.label_folders import LabelFolders
from ssmlbench.data.media import ABOUT, MEDIA
from ssmlbench.data.table_source import part_folders, part_name
from ssmlbench.data.text_files import bare_name, file_ending
from ssmlbench.data.unread import OTHER_TABLES, SPREADSHEETS, UNPACKED
from ssmlbench.data.user_files import PARTS, SPLIT_NAMES, UserFiles

ROWS = (*UNPACKED, *SPREADSHEETS, *OTHER_TABLES)
"""The endings of files that hold rows."""
NAMED_AFTER = (".arff", ".npy", ".npz")
"""Those of files that have the part in a longer name: `NAME-test.arff`, `X_test.npy`."""


def check_forms(data: UserFiles) -> None:
    """Raise a UserError if a file or folder that is called after a part is not read."""
    OtherForms(data).check()


class OtherForms:
    """The files and folders in a data folder, beside those that are read."""

    def __init__(self, data: UserFiles):
        self.data = data
        self.home = data.raw_folder()
        self.read = {file for file in data.row_files() if file.is_relative_to(self.home)}

    def check(self) -> None:
        """Raise a UserError for the first file or folder of rows that are not read."""
        inner = self.home / "data"  # where repositories of the hub have their tables
        searched = inner.is_dir() and not isinstance(self.data, LabelFolders)
        for folder in (self.home, inner) if searched else (self.home,):
            for part in PARTS:
                for file in sorted(folder.iterdir()):
                    if file not in self.read and file.is_file() and self._is_of(file, part):
                        raise self._left_out(file)
                for sub in part_folders(folder, part):
                    found = self._rows_below(sub, part)
                    if found and self.read.isdisjoint(found) and not self._are_named(found, sub):
                        raise self._left_out(sub)

    @cached_property
    def _parts(self) -> tuple[str, ...]:
        return self.data.parts()

    def _is_of(self, file: Path, part: str) -> bool:
        """Whether a file that is not read has rows of a part, by its name."""
        ending, name = file_ending(file), bare_name(file)
        if ending not in ROWS:
            return False
        if part_name(part).fullmatch(name):
            return True
        words = re.split(r"[-_.]", name.lower())
        other = ending not in map(file_ending, self.read)
        return other and ending in NAMED_AFTER and not set(SPLIT_NAMES[part]).isdisjoint(words)

    def _rows_below(self, folder: Path, part: str) -> set[Path]:
        """The files in the folder of a part that may hold its rows.

        If the part is read from elsewhere, files of another kind may belong to its rows.
        """
        kinds = (self.data.kind,) if part in self._parts else MEDIA
        endings = (*ROWS, *(ending for kind in kinds for ending in MEDIA[kind]))
        return {
            file
            for file in paths_below(folder)
            if file_ending(file) in endings
            and file.name.lower() not in ABOUT
            and not any(part.startswith(".") for part in file.relative_to(folder).parts)
        }

    def _are_named(self, files: Iterable[Path], folder: Path) -> bool:
        """Whether a table that is read names one of the files, which may lie in the folder of a part."""
        for file in files:
            inside, below = file.relative_to(folder), file.relative_to(self.home)
            names = {
                str(file),
                below.as_posix(),
                inside.as_posix(),
                inside.with_suffix("").as_posix(),
            }
            if names & self._named:
                return True
        return False

    @cached_property
    def _named(self) -> set[str]:
        return {normpath(value) for value, _ in self.data.named_files()}

    def _left_out(self, path: Path) -> UserError:
        shown = f"{path.relative_to(self.home)}{'/' if path.is_dir() else ''}"
        beside = min(self.read, default=self.home).relative_to(self.home)
        return UserError(
            f"data set {self.home}: {shown} would not be read beside {beside}; write all rows in one "
            "form and place, or move it away"
        )
