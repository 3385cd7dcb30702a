"""Data sets of the Hugging Face library: folders of `save_to_disk`, and repositories on the hub.

Only plain files are read (Arrow, Parquet, CSV, JSON); no code of a hub is ever run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.core.paths import cache_root
from ssmlbench.data.listed_names import read_names
from ssmlbench.data.records import ColumnTypes, Table, TableRecords, arrow_type
from ssmlbench.data.table_source import TableSource
from ssmlbench.data.tables import TableFiles
from ssmlbench.data.user_files import PART_OF, SPLIT_NAMES, safe_name

HUB = "hf:"
HUB_ID = re.compile(r"[\w.-]+(?:/[\w.-]+)?")
COMMIT = re.compile(r"[0-9a-f]{40}")
PATTERNS = ("*.parquet", "*.csv", "*.tsv", "*.json", "*.jsonl", "*.txt", "*.arrow", "README.md")
"""The files that are downloaded of a repository; its images must be inside its tables."""
SAVED_SHARDS = "data-*-of-*.arrow"
"""The files of `save_to_disk`; others, such as cache-….arrow, the library writes beside them."""
BATCH = 200


class SplitTable(Table):
    """A split of a Hugging Face data set as a table."""

    def __init__(self, file: Path, split: str, data: Any):
        super().__init__(file)
        self.split = split
        self.data = data

    @property
    def name(self) -> str:
        """The split's name."""
        return self.split

    @property
    def folder(self) -> Path:
        """The data folder."""
        return self.file

    def where(self, number: int) -> str:
        """The split and the number of the row."""
        return f"{self.split} row {number}"

    @cached_property
    def columns(self) -> ColumnTypes:
        """The columns of the Arrow schema."""
        return {field.name: arrow_type(field.type) for field in self.data.features.arrow_schema}

    def records(self, columns: tuple[str, ...] | None = None) -> TableRecords:
        """Yield the rows as they are stored: images as bytes, labels as ids."""
        names = [name for name in self.columns if columns is None or name in columns]
        chosen = self.data.select_columns(names).with_format("arrow")
        number = 0
        with load_errors_in_one_line(self.file):
            for batch in chosen.iter(batch_size=BATCH):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record

    def label_names(self, column: str) -> list[str] | None:
        """The names of a ClassLabel, or of a list of them."""
        return class_names(self.data.features.get(column))


def check_arrow_files(folder: Path) -> None:
    """Raise what Arrow raises for values that point outside their buffers.

    Before the library loads the files: it casts columns at once, and would crash.
    """
    import pyarrow

    for file in sorted(folder.rglob("*.arrow")):
        with pyarrow.memory_map(str(file)) as opened:
            try:
                table = pyarrow.ipc.open_stream(opened).read_all()
            except pyarrow.ArrowInvalid:  # the other of Arrow's two formats
                table = pyarrow.ipc.open_file(opened).read_all()
            table.validate(full=True)


def check_listed_files(folder: Path) -> None:
    """Raise a UserError unless each `state.json` lists the .arrow files of its folder, each once.

    One outside of it was not checked, and rows of others would be missing, or come twice.
    """
    for state in sorted(folder.rglob("state.json")):
        names = [listed["filename"] for listed in json.loads(state.read_bytes())["_data_files"]]
        for name in names:
            if Path(name).name != name or not name.endswith(".arrow"):
                raise UserError(f"{state}: it lists {name!r}, expected .arrow files of its folder")
        there = {file.name for file in state.parent.glob(SAVED_SHARDS)}
        if wrong := sorted({name for name in names if names.count(name) > 1} or there - {*names}):
            often = "twice" if names.count(wrong[0]) > 1 else "not at all"
            raise UserError(
                f"{state}: it lists {wrong[0]} {often}; save the data set again, or move the file away"
            )
    listing = folder / "dataset_dict.json"
    splits = json.loads(listing.read_bytes())["splits"] if listing.is_file() else None
    saved = {file.parent.name for file in folder.glob("*/state.json")}
    if splits is not None and (unlisted := sorted(saved - {*splits})):
        raise UserError(
            f"{listing}: it does not list {unlisted[0]}/; save it again, or move it away"
        )


def class_names(feature: Any) -> list[str] | None:
    """The names of a feature that is a ClassLabel or a list of them."""
    feature = getattr(feature, "feature", feature)
    names = getattr(feature, "names", None)
    return [str(name) for name in names] if names else None


class SavedSource(TableSource):
    """The tables of a data set that the library has loaded: of several splits, or of one."""

    def __init__(self, folder: Path, loaded: Any, files: list[Path]):
        self.folder = folder
        self.loaded = loaded
        self._files = files
        self.single = not isinstance(loaded, dict)
        if not self.single and not self.tables("train"):
            there = ", ".join(loaded)
            raise UserError(f"data set {folder}: it has no split called train; it has {there}")

    def tables(self, part: str) -> list[Table]:
        """The splits of a part, in their order; a data set without splits is every part's."""
        if self.single:
            return [SplitTable(self.folder, "data", self.loaded)]
        return [
            SplitTable(self.folder, split, data)
            for split, data in self.loaded.items()
            if PART_OF.get(re.sub(r"[-_.]?\d+$", "", split.lower())) == part
        ]

    def files(self) -> list[Path]:
        """The files that the rows are read from."""
        return self._files

    def unread(self) -> list[str]:
        """The splits of which no row is read."""
        read = {table.name for part in SPLIT_NAMES for table in self.tables(part)}
        return [] if self.single else [split for split in self.loaded if split not in read]

    @cached_property
    def listed(self) -> list[str]:
        """The lines of a labels.txt that was put into the folder."""
        return read_names(self.folder)


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` wrote the folder."""
    return any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))


def saved_tables(folder: Path) -> list[Table]:
    """The splits of a folder of `save_to_disk`, or the only table in it."""
    loaded = _load_saved(folder)
    splits = loaded if isinstance(loaded, dict) else {"data": loaded}
    return [SplitTable(folder, split, data) for split, data in splits.items()]


def _load_saved(folder: Path) -> Any:
    import datasets

    with load_errors_in_one_line(folder):
        check_listed_files(folder)
        check_arrow_files(folder)
        return datasets.load_from_disk(str(folder))


def saved_class(folder: Path, options: DataOptions) -> type[TableFiles]:
    """Build the data set class of a folder of `save_to_disk`."""
    loaded = _load_saved(folder)
    files = [file for file in sorted(folder.rglob("*")) if file.suffix in (".arrow", ".json")]
    return TableFiles.of(SavedSource(folder, loaded, files), folder, options)


class HubFiles(TableFiles):
    """A data set repository on the hub, at one commit."""

    reads = DataOptions.names()
    repository: ClassVar[str]

    @classmethod
    def raw_folder(cls) -> Path:
        """Return the folder of the downloaded files."""
        return cls.source.folder  # type: ignore[attr-defined,no-any-return]

    def source_key(self) -> str:
        """Return a key of the commit and of the options: files of one commit never change."""
        address = DataAddress(f"{self.repository}@{self.revision}", self.options)
        return hashlib.sha256(address.text.encode()).hexdigest()[:8]

    def card_notes(self) -> list[str]:
        """Name the repository and its commit."""
        return [f"from the hub: {self.repository} at {self.revision}", *super().card_notes()]


def pinned(address: DataAddress) -> DataAddress:
    """The address of a hub data set with the commit that its revision is now."""
    repository, revision = split_id(address.path)
    if COMMIT.fullmatch(revision):
        return address
    folder = snapshot(repository, revision)
    return DataAddress(f"{HUB}{repository}@{folder.name}", address.options)


def hub_class(address: DataAddress) -> type[TableFiles]:
    """Build the data set class of `hf:owner/name@revision`."""
    repository, revision = split_id(address.path)
    folder = snapshot(repository, revision)
    source = SavedSource(folder, load_folder(folder, address.options.hub_config), [])
    home = Path(f"{HUB}{repository}@{folder.name}")
    fields = {
        "name": safe_name(Path(repository.replace("/", "-"))),
        "repository": repository,
        "revision": folder.name,
    }
    return HubFiles.of(source, home, address.options, **fields)


def split_id(text: str) -> tuple[str, str]:
    """`hf:owner/name@revision` → the repository and the revision, `main` if none is named."""
    repository, _, revision = text.removeprefix(HUB).partition("@")
    if not HUB_ID.fullmatch(repository) or ".." in repository:
        raise UserError(f"data set {text}: expected hf:owner/name or hf:owner/name@revision")
    return repository, revision or "main"


def snapshot(repository: str, revision: str) -> Path:
    """The folder of a repository's files at a revision, downloaded if need be; its name is the commit."""
    import huggingface_hub

    try:
        folder = huggingface_hub.snapshot_download(
            repository,
            repo_type="dataset",
            revision=revision,
            allow_patterns=list(PATTERNS),
            local_files_only=os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"),
        )
    except Exception as error:  # three libraries raise a dozen kinds: it is not available
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"data set {HUB}{repository}: {revision} is not available from the hub "
            f"({type(error).__name__}: {reason[:120]}); check its name and the network"
        ) from None
    return Path(folder)


def load_folder(folder: Path, config: str) -> Any:
    """The splits of a folder that is laid out as a repository on the hub."""
    import datasets

    with load_errors_in_one_line(folder):
        check_arrow_files(folder)
        datasets.disable_progress_bars()
        try:
            return datasets.load_dataset(
                str(folder), config or None, cache_dir=str(cache_root() / "hub")
            )
        finally:
            datasets.enable_progress_bars()


@contextmanager
def load_errors_in_one_line(folder: Path) -> Iterator[None]:
    """Turn what the library raises for a damaged or unknown folder into one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # the library raises its own, Arrow's and many built-in ones
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"data set {folder}: it cannot be read ({type(error).__name__}: {reason[:160]})"
        ) from None
