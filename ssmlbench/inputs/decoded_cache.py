"""The folders of the cache of decoded images. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ssmlbench.core.paths import cache_root
from ssmlbench.inputs.shards import ShardFolder, folders_in


def decoded_root() -> Path:
    """The folder of all decoded images."""
    return cache_root() / "decoded"


@dataclass(frozen=True)
class DecodedFolder(ShardFolder):
    """The decoded images of one split at one size, N × 3 × S × S uint8."""


def cached_images() -> list[DecodedFolder]:
    """The folders in the cache of decoded images, complete or not, by name."""
    return [DecodedFolder(path) for path in folders_in(decoded_root())]
