"""Builds the data set class for a user's path or hub id."""

from __future__ import annotations

import os
from pathlib import Path

from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.core.paths import absolute
from ssmlbench.data.arff import ArffFiles
from ssmlbench.data.arrays import ArrayFiles
from ssmlbench.data.hugging_face import HUB, hub_class, is_saved, pinned, saved_class
from ssmlbench.data.label_folders import LabelFolders, kind_of_folder
from ssmlbench.data.libsvm import SUFFIXES, LibsvmFiles
from ssmlbench.data.other_forms import check_forms
from ssmlbench.data.records import TABLES
from ssmlbench.data.table_source import only_table, part_tables, table_folder
from ssmlbench.data.tables import TableFiles
from ssmlbench.data.text_files import file_ending
from ssmlbench.data.unread import unread_hint
from ssmlbench.data.user_files import UserFiles, safe_name

READERS: dict[str, type[ArffFiles | ArrayFiles | LibsvmFiles | TableFiles]] = {
    ".arff": ArffFiles,
    ".npz": ArrayFiles,
    ".npy": ArrayFiles,
    **dict.fromkeys(SUFFIXES, LibsvmFiles),
    **dict.fromkeys(TABLES, TableFiles),
}
"""The class that reads a file, by the end of its name; a folder is read by the first that finds a file."""


def own_address(typed: str, defaults: DataOptions | None = None) -> DataAddress:
    """Read what a user typed, made to mean the same everywhere: an absolute path, or one commit."""
    address = DataAddress.parse(typed, defaults)
    if address.path.startswith(HUB):
        return pinned(address)
    return DataAddress(str(absolute(address.path)), address.options)


def data_class(address: DataAddress | Path) -> type[UserFiles]:
    """Build the data set class of a user's own data: a folder, a file or a hub id."""
    if isinstance(address, Path):
        address = own_address(str(address))
    if address.path.startswith(HUB):
        return hub_class(address)
    path, options = Path(address.path), address.options
    if path.is_dir():
        safe_name(path)  # before its files are searched: those of / are many
        if is_saved(path):
            return saved_class(path, options)
        found = _reader_of(path).at(path, options)
        check_forms(found())
        return found
    ending = file_ending(path)
    if ending == ".arff" or (ending in READERS and path.exists()):
        return READERS[ending].at(path, options)
    problem = "cannot be read" if path.is_file() else "no such file or folder"
    raise UserError(
        f"data set {path}: {problem}; expected a folder with train and test files, a file that "
        f"ends with {', '.join(READERS)}, or {HUB}owner/name{unread_hint(path) if path.is_file() else ''}"
    )


def _reader_of(
    folder: Path,
) -> type[ArffFiles | ArrayFiles | LibsvmFiles | TableFiles | LabelFolders]:
    """The reader of a folder's files; tables, if it has a train table."""
    ends = {file_ending(file) for file in folder.iterdir()}
    if any(file_ending(file) in TABLES for file in folder.glob("train*")):
        return TableFiles
    inner = table_folder(folder)
    tables = part_tables(inner, "train") or only_table(inner)
    if not tables and not ends & READERS.keys() - {".json"} and kind_of_folder(folder):
        return LabelFolders
    return next((reader for end, reader in READERS.items() if end in ends), TableFiles)


def is_own_data(text: str) -> bool:
    """Whether the text of a plugin is a user's own data; else it is a Python file."""
    path = DataAddress.parse(text).path
    if path.startswith(HUB) or file_ending(Path(path)) in READERS:
        return True
    return os.path.isdir(path)  # noqa: PTH112 (a Path raises an error for a name that is too long)


def looks_like_path(text: str) -> bool:
    """Whether the text after --dataset is a path: `./mine` is one, `mine` only if it exists."""
    path = DataAddress.parse(text).path
    if path.startswith(HUB):
        return True
    known = file_ending(Path(path)) in READERS
    return "/" in path or "\\" in path or known or os.path.exists(path)  # noqa: PTH110 (as above)
