"""The data set contract: an adapter declares the source of its rows, and facts about them.

The adapter reads the raw files; the engine writes, checks and fingerprints the rows.
"""

from __future__ import annotations

import errno
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Literal

from ssmlbench.core.commands import suggested
from ssmlbench.core.errors import ListedMistakes, UserError
from ssmlbench.core.names import PLUGIN_PREFIX
from ssmlbench.core.paths import builtin_root, from_home
from ssmlbench.core.process_environment import variable
from ssmlbench.core.whole_numbers import whole_number
from ssmlbench.data.text_files import check_encoding

Kind = Literal["image", "text", "vector"]
SPLITS = ("train", "test")
HUB_SECONDS = 10.0
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".zip")


@dataclass(frozen=True)
class Row:
    """One example.

    input: a text; a vector of floats; or an image as the path of its file, the bytes of its file
    (both kept as they are), or an array (H × W or H × W × 3, uint8).
    """

    input: Any
    labels: tuple[int, ...] | None  # the positions of its positive labels; None: nothing is known
    id: str = ""  # what the source calls it; an id that occurs twice is reported
    where: str = ""  # file and line, for error messages
    back_translation: str = ""  # of a training text, where the adapter is `back_translated`
    unknown: tuple[int, ...] = ()  # the positions of labels that may or may not apply


@dataclass(frozen=True)
class BadRow:
    """A bad row of the raw files: yielded instead of a row."""

    where: str  # `train.tsv line 12`
    reason: str
    kind: str = "malformed row"  # what it is counted as


@dataclass(frozen=True)
class InputColumns:
    """The columns of the raw files that the inputs come from."""

    inputs: tuple[str, ...] = ()  # in their order; empty: they have no names
    id: str = ""
    all: tuple[str, ...] = ()  # all columns, used or not
    coded: tuple[str, ...] = ()  # inputs whose numbers were read as the places of values in a list


@dataclass(frozen=True)
class PublishedStatistics:
    """The statistics of a data set in papers; None where they state none."""

    source: str
    train: int | None = None
    test: int | None = None
    labels: int | None = None
    mean_labels: float | None = None  # positives of a row, over both splits

    def __post_init__(self) -> None:
        for name in ("train", "test", "labels", "mean_labels"):
            value = getattr(self, name)
            kind, expected = (
                (Real, "a number") if name == "mean_labels" else (Integral, "a whole number")
            )
            if value is not None and not isinstance(value, kind):
                raise TypeError(f"PublishedStatistics: {name} is {value!r}; expected {expected}")

    def as_plain(self) -> PublishedStatistics:
        """The same as plain values, which other processes get: a plugin may have others."""
        counts = (self.train, self.test, self.labels)
        train, test, labels = (None if count is None else int(count) for count in counts)
        mean = None if self.mean_labels is None else float(self.mean_labels)
        return PublishedStatistics(str(self.source), train, test, labels, mean)


@dataclass(frozen=True)
class Hub:
    """A data set repository of plain files on the Hugging Face hub, at one revision."""

    repository: str
    revision: str
    config: str | None = None
    splits: dict[str, str] = field(default_factory=lambda: {s: s for s in SPLITS})

    def load(self, split: str) -> Any:
        """The split as a Hugging Face data set. Parquet only: no code of a hub is ever run."""
        import huggingface_hub

        import datasets

        # Without a network this fails at once; load_dataset would try again for half a minute.
        huggingface_hub.HfApi().dataset_info(
            self.repository, revision=self.revision, timeout=HUB_SECONDS
        )
        return datasets.load_dataset(
            self.repository, self.config, revision=self.revision, split=self.splits[split]
        )


class DatasetAdapter(ABC):
    """The source of a data set's rows. Each file in datasets/ defines one."""

    name: ClassVar[str]
    kind: ClassVar[Kind]
    version: ClassVar[int] = 1  # raised when the rows change; prepared copies are then rewritten
    backbone: ClassVar[str]  # the encoder used when the command line names none
    citation: ClassVar[str] = ""
    licence: ClassVar[str] = ""
    flips: ClassVar[bool] = True  # images: does a mirrored row keep its labels?
    back_translated: ClassVar[bool] = False  # texts: do training rows have back-translations?
    ids_per_split: ClassVar[bool] = False  # may train and test share ids?
    revision: ClassVar[str] = ""  # the version of its source; part of the fingerprint
    drop_leaks: ClassVar[bool] = False  # leave out training rows whose input is in the test set?
    layout: ClassVar[str] = ""  # what the raw folder looks like; empty: no files are needed
    download: ClassVar[str] = ""  # where to get the raw files
    folders: ClassVar[tuple[str, ...]] = ()  # other names its folder often has below --data-dir
    hub: ClassVar[Hub | None] = None  # used when there is no folder
    published: ClassVar[PublishedStatistics | None] = None
    notes: ClassVar[tuple[str, ...]] = ()  # what a user of the numbers must know; on the card

    def __init__(self, source: Path | None = None, data_dir: Path | None = None):
        """source: the raw folder itself. data_dir: a folder with a folder per data set in it."""
        sys.audit("ssmlbench.adapter", type(self).name)  # it can read labels: see runs/seal.py
        self._source = Path(source) if source is not None else None
        self._data_dir = data_dir

    @abstractmethod
    def label_names(self) -> list[str]:
        """The K labels, in the order of the label positions."""

    def splits(self) -> tuple[str, ...]:
        """The splits that it has: "train", and "test" unless a user's own data has none."""
        return SPLITS

    @abstractmethod
    def rows(self, split: str) -> Iterator[Row | BadRow]:
        """The rows of "train" or "test", one by one: nothing is held in memory here."""

    def card_notes(self) -> list[str]:
        """The notes, for an adapter that takes them from its files."""
        return list(self.notes)

    def columns(self) -> InputColumns:
        """The columns of the raw files, where they have names: `predict` matches new files with them."""
        return InputColumns()

    def source_key(self) -> str:
        """A key that separates two sources of one name in the cache; empty for named data sets."""
        return ""

    @cached_property
    def folder(self) -> Path | None:
        """The raw folder: as given, or below --data-dir or SSMLBENCH_DATA; None if there is none."""
        if not self.layout:
            return None
        if self._source is not None:
            return self._source
        data_dir = self.data_dir
        if data_dir is None:
            return None
        for name in (self.name, *self.folders):
            if (data_dir / name).is_dir():
                return data_dir / name
        return None

    @property
    def data_dir(self) -> Path | None:
        """The folder with a folder for each data set: as given, or SSMLBENCH_DATA."""
        if self._data_dir is not None:
            return Path(self._data_dir)
        return from_home(typed) if (typed := variable("SSMLBENCH_DATA")) else None

    @property
    def files_there(self) -> bool:
        """Whether there is a raw folder; it may still be incomplete."""
        return not self.layout or self.folder is not None

    def path(self, *alternatives: str) -> Path:
        """The first of these paths that exists in the raw folder; a UserError when none does."""
        folder = self.folder
        if folder is None:
            raise self.missing("its files are not there")
        for alternative in alternatives:
            if _exists(folder / alternative):
                return folder / alternative
        raise self.missing(f"{' or '.join(name[:100] for name in alternatives)} is missing")

    def from_hub(self, split: str) -> Any:
        """The split from the hub; a UserError with advice if it is not available."""
        assert self.hub is not None
        try:
            return self.hub.load(split)
        except Exception as error:  # three libraries raise a dozen kinds: it is not available
            problem = (
                f"its files are not there, and {self.hub.repository} cannot be loaded from the hub"
            )
            raise self.missing(f"{problem} ({type(error).__name__})") from error

    def has(self, name: str) -> bool:
        """Whether the raw folder has a file or folder of this name."""
        folder = self.folder
        return folder is not None and _exists(folder / name)

    def where(self, file: Path, line: int | None = None) -> str:
        """A file's path in the raw folder, and a line: `train.tsv line 12`."""
        # No pathlib: this is called for every row, and pathlib took a third of the time of `prepare`.
        near = file.as_posix().removeprefix(f"{self.folder.as_posix()}/" if self.folder else "")
        return f"{near} line {line}" if line is not None else near

    def numbered_texts(self, file: Path) -> dict[int, str]:
        """The texts of the lines `12 text` of a file, by number and in its order.

        A UserError for another line, or for two texts of one number.
        """
        found: dict[int, str] = {}
        for number, line in numbered_lines(file):
            key, _, text = " ".join(line.split()).partition(" ")
            if not key:
                continue
            where, counted = f"data set {self.name}: {self.where(file, number)}", whole_number(key)
            if counted is None or not text:
                raise UserError(f"{where}: expected a number and a text")
            if found.setdefault(counted, text) != text:
                raise UserError(f"{where}: {counted} is {found[counted]!r} in another line")
        return dict(sorted(found.items()))

    def counted_texts(self, file: Path) -> list[str]:
        """The texts of `numbered_texts`; a UserError unless their numbers are 1 to N."""
        found = self.numbered_texts(file)
        if list(found) != list(range(1, len(found) + 1)):
            raise UserError(
                f"data set {self.name}: {self.where(file)}: its numbers are not 1, 2, 3 …"
            )
        return list(found.values())

    @property
    def _own_file(self) -> Path:
        return Path(inspect.getfile(type(self))).resolve()

    @property
    def is_built_in(self) -> bool:
        """Whether its class is in one of this tool's own files."""
        try:
            return self._own_file.is_relative_to(builtin_root() / "datasets")
        except (OSError, TypeError):  # a class that was typed in
            return False

    def prepare_command(self, folder: str) -> str:
        """The command that prepares the data set from a folder of raw files."""
        own = type(self).__module__.startswith(PLUGIN_PREFIX) and not self.is_built_in
        plugins = [str(self._own_file)] if own else []
        return suggested("data", "prepare", self.typed_name, "--from", folder, plugins=plugins)

    @property
    def typed_name(self) -> str:
        """The name to type for it."""
        return self.name

    def missing(self, problem: str) -> UserError:
        """The error for missing files: the problem, the download, the folder for it, and its layout."""
        looked = self._source or self.folder
        data_dir = self.data_dir
        if looked is None and data_dir is not None:
            looked = data_dir / self.name
        lines = [f"data set {self.name}: {problem}" + (f" in {looked}" if looked else "")]
        if looked is not None and looked.is_dir():
            packed = sorted(f.name for f in looked.iterdir() if f.name.endswith(ARCHIVES))
            if packed:
                lines.append(f"  unpack first: {', '.join(packed[:3])} (it is packed)")
        elif looked is not None and looked.is_file():
            lines.append("  that is a file; unpack it and give the folder")
        if self.download:
            lines.append(f"  download:  {self.download}")
        lines += [
            f"  put it in: DIR/{self.name}, and type --data-dir DIR or set SSMLBENCH_DATA=DIR;",
            f"             or type `{self.prepare_command('FOLDER')}`",
            "  the folder should look like:",
            *(f"    {line}" for line in self.layout.strip("\n").splitlines()),
        ]
        return ListedMistakes(*lines)


def _exists(path: Path) -> bool:
    """Whether there is such a path; a name from a raw file may be too long for one."""
    try:
        return path.exists()
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return False


def numbered_lines(file: Path, encoding: str = "utf-8-sig") -> Iterator[tuple[int, str]]:
    r"""Yield the lines of a text file, numbered from 1, without their ends: \n or \r\n.

    A byte that is not in the encoding is kept; `prepare` reports a text with one in it.
    """
    check_encoding(file)
    with file.open(encoding=encoding, errors="surrogateescape", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1 and not line.endswith("\n") and "\r" in line.rstrip("\r"):
                raise UserError(rf"{file}: its lines end with \r alone; save it with \n")
            yield number, line.rstrip("\r\n")


def label_string(text: str, label_count: int, where: str) -> tuple[int, ...] | BadRow:
    """`0110` → (1, 2); a BadRow for another length or other characters."""
    if len(text) != label_count:
        reason = f"the label string has {len(text)} digits, expected {label_count}"
        return BadRow(where, reason, "label string of the wrong length")
    if set(text) - {"0", "1"}:
        return BadRow(where, f"label string {text[:20]!r} is not made of 0 and 1")
    return tuple(k for k, digit in enumerate(text) if digit == "1")
