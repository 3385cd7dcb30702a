"""A folder of the cache with one array in shards, written once by one process. Free of torch.

Each shard ends with a checksum of its rows and its place; about.json is written last, so that a folder is
complete if and only if it is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssmlbench.core.checksums import (
    append_trailer,
    failures,
    place_of,
    remember_trailer,
    verify_trailer,
)
from ssmlbench.core.errors import BLOCKED, DamagedFile, UserError, is_passing
from ssmlbench.core.events import Notify, Waiting, Warned
from ssmlbench.core.files import (
    atomic,
    discard,
    read_placed_json,
    remove_folder,
    write_placed_json,
)
from ssmlbench.core.locks import Lock, acquire_with_notice, held_if_free


@dataclass(frozen=True)
class ShardFolder:
    """Rows of one array on disk: complete if and only if about.json is whole."""

    path: Path

    @property
    def about_file(self) -> Path:
        """The JSON file that describes the rows; it is written after all shards."""
        return self.path / "about.json"

    @property
    def lock_file(self) -> Path:
        """Beside the folder, so that it can be held while the folder is deleted."""
        return self.path.with_name(f"{self.path.name}.lock")

    @property
    def complete(self) -> bool:
        """Whether every row is written."""
        return self.about is not None

    @property
    def about(self) -> dict[str, Any] | None:
        """The content of about.json; None if the file is missing, damaged or of another folder."""
        try:
            return read_placed_json(self.about_file)
        except (DamagedFile, FileNotFoundError):
            return None

    @property
    def bytes(self) -> int:
        """Size on disk."""
        total = 0
        with suppress(OSError):  # the folder is deleted meanwhile, or cannot be listed
            for file in self.path.iterdir():
                with suppress(OSError):
                    total += file.stat().st_size
        return total

    def shard_file(self, number: int) -> Path:
        """The file of the rows of one shard."""
        return self.path / f"{number:05d}.npy"

    def shards(self) -> list[Path]:
        """Every shard file of a complete entry, in order; none if it is not complete."""
        return [self.shard_file(number) for number in range((self.about or {}).get("shards", 0))]

    def damaged(self) -> list[DamagedFile]:
        """Verify about.json and the shards, those too that are missing: the error of each damaged file."""
        about = self.about_file
        errors = failures(read_placed_json, about) if os.path.lexists(about) else []
        begun = self.path.glob("*.npy")
        for file in self.shards() or sorted(begun):
            errors += failures(verify_trailer, file)
        return errors

    def discard(self, damaged: list[DamagedFile], notify: Notify, again: str) -> bool:
        """Delete damaged files, which the caller makes again; return whether there are any."""
        if not damaged:
            return False
        others = f", as are {len(damaged) - 1} other files beside it" if damaged[1:] else ""
        notify(Warned(f"{damaged[0]}; it is {again} again{others}"))
        for damage in damaged:
            discard(damage.file)
        discard(self.about_file)
        return True

    @contextmanager
    def locked(self, notify: Notify, waits: str) -> Iterator[None]:
        """Make the folder, and hold it for this process. waits: shown while another holds it."""
        try:
            self._make()
        except OSError as error:
            if is_passing(error) or error.errno in BLOCKED:  # another folder would not help
                raise
            raise UserError(
                f"cannot write to {self.path}: {error.strerror}; set SSMLBENCH_CACHE to a "
                "folder that can be written to"
            ) from None
        lock = Lock(self.lock_file)
        acquire_with_notice(lock, lambda: notify(Waiting(waits)))
        try:
            self.path.mkdir(parents=True, exist_ok=True)  # `remove` may have held the lock
            yield
        finally:
            lock.release(remove=True)

    def _make(self) -> None:
        """Make the folder, also if a file or a link to nothing is in its place: it can be filled again."""
        with suppress(FileExistsError):
            self.path.mkdir(parents=True, exist_ok=True)
            return
        discard(self.path)
        self.path.mkdir(parents=True, exist_ok=True)

    def write_shard(self, number: int, rows: NDArray[Any]) -> None:
        """Write the rows of one shard with their checksum, whole or not at all."""
        with atomic(self.shard_file(number)) as unfinished:
            with unfinished.open("wb") as opened:
                # Through `write`: to a file itself NumPy writes without the reason of an error.
                np.save(SimpleNamespace(write=opened.write), rows)
            append_trailer(unfinished, place_of(self.shard_file(number)))
        remember_trailer(self.shard_file(number))

    def write_about(self, about: Mapping[str, Any]) -> None:
        """Write about.json, which makes the folder complete: all shards are written."""
        write_placed_json(self.about_file, about)

    def belongs_to(self, dataset: str) -> bool:
        """Whether the rows are of this data set."""
        if self.about is not None:
            return bool(self.about["dataset"] == dataset)
        return self.path.name.startswith(f"{dataset}-")

    def remove(self) -> bool:
        """Delete it, unless a run is writing it at this moment."""
        with held_if_free(self.lock_file) as free:
            if free:
                # First: an entry that is half deleted must not look complete.
                discard(self.about_file)
                remove_folder(self.path)
        return free


def folder_name(dataset: str, *parts: str) -> str:
    """The name of a folder of the cache: the data set's name, then the parts of its key."""
    stem = "".join(c if c.isalnum() or c in "-_" else "_" for c in dataset)
    return "-".join((stem, *parts))


def folders_in(root: Path) -> list[Path]:
    """The folders of a part of the cache, complete or begun, by name."""
    if not root.is_dir():
        return []
    return [path for path in sorted(root.iterdir()) if path.is_dir()]
