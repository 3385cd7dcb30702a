"""From a path or hub id that a user typed to the data set class that reads it."""

from __future__ import annotations

from pathlib import Path

from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.data.arff import ArffFiles
from ssmlbench.data.records import TABLES
from ssmlbench.data.tables import TableFiles
from ssmlbench.data.user_files import UserFiles

FILES = (".arff", *TABLES)
"""How the files end that are data sets on their own."""


def own_address(typed: str, defaults: DataOptions | None = None) -> DataAddress:
    """Read what a user typed; the path is made absolute, so that it means the same everywhere."""
    address = DataAddress.parse(typed, defaults)
    return DataAddress(str(Path(address.path).expanduser().resolve()), address.options)


def data_class(address: DataAddress | Path) -> type[UserFiles]:
    """Build the data set class of a folder or file of a user's own data."""
    if isinstance(address, Path):
        address = own_address(str(address))
    path, options = Path(address.path), address.options
    if path.suffix == ".arff":
        return ArffFiles.at(path, options)
    if path.is_dir():
        if list(path.glob("*.arff")) and not list(path.glob("train.*")):
            return ArffFiles.at(path, options)
        return TableFiles.at(path, options)
    if path.suffix in FILES and path.exists():
        return TableFiles.at(path, options)
    raise UserError(
        f"data set {path}: no such folder; expected one with train and test files (CSV, TSV, JSONL "
        f"or Parquet), or a file that ends with {', '.join(FILES)}"
    )


def is_own_data(text: str) -> bool:
    """Whether the text of a plugin is a user's own data; else it is a Python file."""
    path = Path(DataAddress.parse(text).path)
    return path.is_dir() or path.suffix in FILES


def looks_like_path(text: str) -> bool:
    """Whether the text after --dataset is a path: `./mine` is a path, `mine` is a name."""
    path = DataAddress.parse(text).path
    return "/" in path or "\\" in path or path.endswith(FILES) or Path(path).is_dir()
