"""The base of users' own data: a name from the path, parts, held-out rows, a key from the files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from ssmlbench.core.commands import near_address
from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.core.names import is_name
from ssmlbench.data.adapter import BadRow, DatasetAdapter, Row
from ssmlbench.data.text_files import bare_name

PARTS = ("train", "test", "unlabelled")
"""The parts of own data; rows of the last one are training rows with unknown labels."""
SPLIT_NAMES = {
    "train": ("train", "training"),
    "test": ("test", "testing"),
    "unlabelled": ("unlabelled", "unlabeled", "unsupervised"),
    "validation": ("validation", "valid", "val", "dev"),
}
"""Part → what files, splits and the values of a split column may be called."""
PART_OF = {name: part for part, names in SPLIT_NAMES.items() for name in names}
LABEL_FILE = "labels.txt"
"""The labels and their order, in the folder of the data; optional."""
COMMON_OPTIONS = frozenset({"holdout", "holdout_seed", "drop_leaks"})
"""The options that every kind of own data reads."""
BACKBONES = {"text": "bert-base-uncased", "image": "resnet50", "vector": "vector"}
"""The encoder of own data if the command line names none, by the kind of its inputs."""


class UserFiles(DatasetAdapter):
    """A data set that is named by its path. `user_data.data_class` builds the class of a path."""

    home: ClassVar[Path]  # what the user named
    options: ClassVar[DataOptions] = DataOptions()
    format_name: ClassVar[str]
    reads: ClassVar[frozenset[str]] = frozenset()  # the options beside COMMON_OPTIONS
    ids_per_split = True  # ids of tables are often row numbers

    @classmethod
    def named(cls, home: Path, options: DataOptions, **fields: Any) -> type[Self]:
        """Build a class of this kind with the name of its path; a file's ending is left out."""
        cls._check_options(home, options)
        name = safe_name(home.with_name(bare_name(home)) if home.is_file() else home)
        own = {"__module__": cls.__module__, "name": name, "home": home, "options": options}
        own["drop_leaks"] = options.drop_leaks
        return type(cls.__name__, (cls,), {**own, **fields})

    @classmethod
    def _check_options(cls, home: Path, options: DataOptions) -> None:
        """Raise a UserError for an option that would not be read."""
        unread = [name for name in options.given if name not in COMMON_OPTIONS | cls.reads]
        if unread:
            option = unread[0].replace("_", "-")
            raise UserError(
                f"data set {home}: --{option} is not for {cls.format_name}; leave it out"
            )
        if options.holdout_seed and not options.holdout:
            raise UserError(
                f"data set {home}: --holdout-seed draws the rows of --holdout, which is not given"
            )

    @classmethod
    def raw_folder(cls) -> Path:
        """Return the folder that the files lie in."""
        return cls.home if cls.home.is_dir() else cls.home.parent

    @property
    def typed_name(self) -> str:
        """The path of own data, with how it is read."""
        return near_address(DataAddress(str(self.home), self.options).text)

    @abstractmethod
    def source_files(self) -> list[Path]:
        """Return every file that is read, or decides what is read."""

    def row_files(self) -> list[Path]:
        """Return those of them that rows are read from."""
        return self.source_files()

    @abstractmethod
    def parts(self) -> tuple[str, ...]:
        """The existing ones of PARTS."""

    @abstractmethod
    def part_rows(self, part: str) -> Iterator[Row | BadRow]:
        """Yield the rows of a part, in order."""

    def __init__(self, source: Path | None = None, data_dir: Path | None = None):
        super().__init__(source or self.raw_folder(), data_dir)

    def source_key(self) -> str:
        """Return a key that changes when a file is edited or moved; contents are not read."""
        names = label_file(self.raw_folder())
        files = dict.fromkeys([*self.source_files(), *([names] if names else [])])
        facts: list[Any] = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files]
        if self.options.given:
            facts.append(self.options.given)
        if named := self.named_facts():
            facts.append(named)
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:8]

    def named_files(self) -> Iterator[tuple[str, Path]]:
        """The names of the images or texts in the tables that are read, and the tables' folders."""
        return iter(())

    def named_facts(self) -> str:
        """Return a digest of the sizes and times of the files that its files name; empty if none."""
        return ""

    def splits(self) -> tuple[str, ...]:
        """Return the splits: "test" if there are test rows or some are held out."""
        parts = self.parts()
        if self.options.holdout and "test" in parts:
            raise UserError(
                f"data set {self.home}: --holdout is for data without test rows, and this has some"
            )
        return ("train", "test") if "test" in parts or self.options.holdout else ("train",)

    def rows(self, split: str) -> Iterator[Row | BadRow]:
        """Yield the rows of a split; training rows without labels come last."""
        if self.options.holdout:
            for number, row in enumerate(self.part_rows("train")):
                if (number in self._held_out) == (split == "test"):
                    yield row
        else:
            yield from self.part_rows(split)
        if split == "train" and "unlabelled" in self.parts():
            for row in self.part_rows("unlabelled"):
                if isinstance(row, Row):
                    row = dataclasses.replace(row, labels=None, unknown=())
                yield row

    @cached_property
    def _held_out(self) -> frozenset[int]:
        """The numbers of the rows of part "train" that are the test rows."""
        labelled = [
            number
            for number, row in enumerate(self.part_rows("train"))
            if isinstance(row, Row) and row.labels is not None and not row.unknown
        ]
        count = round(self.options.holdout * len(labelled))
        if not 0 < count < len(labelled):
            raise UserError(
                f"data set {self.home}: --holdout {self.options.holdout:g} of {len(labelled)} fully "
                f"labelled rows is {count}; neither part may be empty"
            )
        order = np.random.RandomState(self.options.holdout_seed).permutation(len(labelled))
        return frozenset(labelled[k] for k in order[:count])


def label_file(folder: Path) -> Path | None:
    """The labels.txt of a folder, in upper or lower case; None if there is none."""
    named = (f for f in sorted(folder.iterdir()) if f.name.lower() == LABEL_FILE)
    return (folder / LABEL_FILE) if (folder / LABEL_FILE).exists() else next(named, None)


def safe_name(path: Path) -> str:
    """Turn a path into a data set's name, which names a results folder too."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.name).strip("-._")[:100].rstrip("-.")
    if not is_name(name):
        raise UserError(f"data set {path}: its path gives no usable name; rename the folder")
    return name
