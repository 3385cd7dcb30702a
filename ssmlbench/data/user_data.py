"""From a path that a user typed to the data set class that reads it."""

from __future__ import annotations

from pathlib import Path

from ssmlbench.core.errors import UserError
from ssmlbench.data.arff import ArffFiles
from ssmlbench.data.tables import TableFolder
from ssmlbench.data.user_files import UserFiles


def data_class(path: Path) -> type[UserFiles]:
    """Build the data set class of a folder of tables, or of a Mulan ARFF file."""
    path = path.expanduser().resolve()
    if path.suffix == ".arff":
        return ArffFiles.at(path)
    if not path.is_dir():
        raise UserError(
            f"data set {path}: no such folder; expected one with train and test files (CSV, JSONL "
            "or Parquet), or a Mulan file NAME.arff"
        )
    return TableFolder.at(path)


def looks_like_path(text: str) -> bool:
    """Whether the text after --dataset is a path: `./mine` is a path, `mine` is a name."""
    return "/" in text or "\\" in text or text.endswith(".arff") or Path(text).is_dir()
