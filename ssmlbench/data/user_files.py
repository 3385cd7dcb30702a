"""What tables and ARFF files of a user share: a name from the path, a key from the files."""

from __future__ import annotations

import hashlib
import json
import re
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

from ssmlbench.core.errors import UserError
from ssmlbench.data.adapter import DatasetAdapter


class UserFiles(DatasetAdapter):
    """A data set that is named by its path. `user_data.data_class` builds the class of a path."""

    home: ClassVar[Path]  # what the user named
    ids_per_split = True  # ids of tables are often row numbers

    @classmethod
    @abstractmethod
    def at(cls, path: Path) -> type[UserFiles]:
        """Build the data set class of a path; a UserError if files are missing."""

    @classmethod
    def named(cls, home: Path, **fields: Any) -> type[Self]:
        """Build a class of this kind with the name of its path."""
        return type(cls.__name__, (cls,), {"name": safe_name(home), "home": home, **fields})

    @classmethod
    @abstractmethod
    def raw_folder(cls) -> Path:
        """Return the folder that the files lie in."""

    @abstractmethod
    def source_files(self) -> list[Path]:
        """Return every file that rows are read from."""

    def __init__(self, source: Path | None = None, data_dir: Path | None = None):
        super().__init__(source or self.raw_folder(), data_dir)

    def source_key(self) -> str:
        """Return a key that changes when a file is edited or moved; contents are not read."""
        facts = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in self.source_files()]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:8]


def safe_name(path: Path) -> str:
    """Turn a path into a data set's name, which names a results folder too."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.name).strip("-.")
    if not name:
        raise UserError(f"data set {path}: its path gives no usable name; rename the folder")
    return name
