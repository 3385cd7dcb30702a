"""The folders of the two caches of inputs: frozen features and decoded images. Free of torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ssmlbench.core.checksums import failures, verify_placed_stamp
from ssmlbench.core.errors import DamagedFile
from ssmlbench.core.paths import cache_root
from ssmlbench.inputs.shards import ShardFolder, folders_in


def features_root() -> Path:
    """The folder of all cached features."""
    return cache_root() / "features"


def decoded_root() -> Path:
    """The folder of all decoded images."""
    return cache_root() / "decoded"


@dataclass(frozen=True)
class FeatureFolder(ShardFolder):
    """The features of one split in one drawn view."""

    @property
    def state_file(self) -> Path:
        """The state of a fitted encoder; only beside the plain view of the training rows."""
        return self.path / "encoder.safetensors"

    def damaged_state(self) -> list[DamagedFile]:
        """The damage of a fitted encoder's state, if there is one."""
        file = self.state_file
        return failures(verify_placed_stamp, file) if os.path.lexists(file) else []


@dataclass(frozen=True)
class DecodedFolder(ShardFolder):
    """The decoded images of one split at one size, N × 3 × S × S uint8."""


def cached_features() -> list[FeatureFolder]:
    """The folders in the cache of features, complete or not, by name."""
    return [FeatureFolder(path) for path in folders_in(features_root())]


def cached_images() -> list[DecodedFolder]:
    """The folders in the cache of decoded images, complete or not, by name."""
    return [DecodedFolder(path) for path in folders_in(decoded_root())]
