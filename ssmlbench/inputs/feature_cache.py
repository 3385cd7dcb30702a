"""Where cached features are on disk, and which there are. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ssmlbench.core.checksums import failures, verify_placed_stamp
from ssmlbench.core.errors import DamagedFile
from ssmlbench.core.paths import cache_root
from ssmlbench.inputs.shards import ShardFolder, folders_in


def features_root() -> Path:
    """The folder of all cached features."""
    return cache_root() / "features"


@dataclass(frozen=True)
class FeatureFolder(ShardFolder):
    """The features of one split in one drawn view."""

    @property
    def state_file(self) -> Path:
        """What a fitted encoder learnt; beside the plain view of the training rows only."""
        return self.path / "encoder.safetensors"

    def damaged_state(self) -> list[DamagedFile]:
        """Find what is wrong with the state of a fitted encoder, if it is there."""
        return failures(verify_placed_stamp, self.state_file) if self.state_file.is_file() else []


def cached_features() -> list[FeatureFolder]:
    """Everything in the cache of features, complete or begun, by name."""
    return [FeatureFolder(path) for path in folders_in(features_root())]
