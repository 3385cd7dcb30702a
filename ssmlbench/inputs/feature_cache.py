"""Where cached features are on disk, and which there are. Free of torch."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssmlbench.core.checksums import failures, verify_stamp, verify_trailer
from ssmlbench.core.errors import DamagedFile
from ssmlbench.core.files import read_json
from ssmlbench.core.locks import Busy, Lock
from ssmlbench.core.paths import cache_root


def features_root() -> Path:
    """The folder of all cached features."""
    return cache_root() / "features"


@dataclass(frozen=True)
class FeatureFolder:
    """The features of one split in one drawn view: complete if and only if about.json is whole."""

    path: Path

    @property
    def about_file(self) -> Path:
        """What the features are of; written last."""
        return self.path / "about.json"

    @property
    def state_file(self) -> Path:
        """What a fitted encoder learnt; beside the plain view of the training rows only."""
        return self.path / "encoder.safetensors"

    @property
    def lock_file(self) -> Path:
        """Beside the folder, so that it can be held while the folder is deleted."""
        return self.path.with_name(f"{self.path.name}.lock")

    @property
    def complete(self) -> bool:
        """Whether the features of every row are written."""
        return self.about is not None

    @property
    def about(self) -> dict[str, Any] | None:
        """What about.json says; None if it is missing or damaged."""
        return read_json(self.about_file)

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return sum(file.stat().st_size for file in self.path.iterdir() if file.is_file())

    def shard_file(self, number: int) -> Path:
        """The file of the rows of one shard."""
        return self.path / f"{number:05d}.npy"

    def shards(self) -> list[Path]:
        """Every shard file of a complete entry, in order; none if it is not complete."""
        return [self.shard_file(number) for number in range((self.about or {}).get("shards", 0))]

    def damaged(self) -> list[DamagedFile]:
        """Find what is not as it was written: about.json, or a shard that is there or should be."""
        found = []
        if self.about_file.is_file() and not self.complete:
            found.append(DamagedFile(self.about_file, "its content is not what was written"))
        begun = self.path.glob("*.npy")
        for file in self.shards() or sorted(begun):
            found += failures(verify_trailer, file)
        return found

    def damaged_state(self) -> list[DamagedFile]:
        """Find what is wrong with the state of a fitted encoder, if it is there."""
        return failures(verify_stamp, self.state_file) if self.state_file.is_file() else []

    def belongs_to(self, dataset: str) -> bool:
        """Whether the features are of this data set."""
        if self.about is not None:
            return bool(self.about["dataset"] == dataset)
        return self.path.name.startswith(f"{dataset}-")

    def remove(self) -> bool:
        """Delete it, unless a run is computing it at this moment."""
        lock = Lock(self.lock_file)
        try:
            lock.acquire(wait=False)
        except Busy:
            return False
        try:
            # First: an entry that is half deleted must not look complete.
            self.about_file.unlink(missing_ok=True)
            shutil.rmtree(self.path, ignore_errors=True)
        finally:
            lock.release(remove=True)
        return True


def cached_features() -> list[FeatureFolder]:
    """Everything in the cache, complete or begun, by name."""
    if not features_root().is_dir():
        return []
    return [FeatureFolder(path) for path in sorted(features_root().iterdir()) if path.is_dir()]
