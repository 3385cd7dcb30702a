"""Where cached features are on disk, and which there are. Free of torch."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ssmlbench.core.paths import cache_root


def features_root() -> Path:
    """The folder of all cached features."""
    return cache_root() / "features"


@dataclass(frozen=True)
class FeatureFolder:
    """The features of one split in one drawn view: complete if and only if about.json exists."""

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
        """Beside the folder, so that `cache clear` does not delete it while a run waits for it."""
        return self.path.with_name(f"{self.path.name}.lock")

    @property
    def complete(self) -> bool:
        """Whether the features of every row are written."""
        return self.about_file.is_file()

    @property
    def about(self) -> dict[str, Any]:
        """What about.json says."""
        about: dict[str, Any] = json.loads(self.about_file.read_text())
        return about

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return sum(file.stat().st_size for file in self.path.iterdir() if file.is_file())

    def shard_file(self, number: int) -> Path:
        """The file of the rows of one shard."""
        return self.path / f"{number:05d}.npy"

    def shards(self) -> list[Path]:
        """Every shard file of a complete entry, in order."""
        return [self.shard_file(number) for number in range(self.about["shards"])]

    def belongs_to(self, dataset: str) -> bool:
        """Whether the features are of this data set."""
        if self.complete:
            return bool(self.about["dataset"] == dataset)
        return self.path.name.startswith(f"{dataset}-")

    def remove(self) -> bool:
        """Delete it, unless a run is computing it at this moment."""
        try:
            with FileLock(self.lock_file, timeout=0):
                # First: an entry that is half deleted must not look complete.
                self.about_file.unlink(missing_ok=True)
                shutil.rmtree(self.path, ignore_errors=True)
        except Timeout:
            return False
        return True


def cached_features() -> list[FeatureFolder]:
    """Everything in the cache, complete or begun, by name."""
    if not features_root().is_dir():
        return []
    return [FeatureFolder(path) for path in sorted(features_root().iterdir()) if path.is_dir()]
