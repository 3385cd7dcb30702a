"""The random streams of a run, each named by its purpose.

Streams are derived from the seed and the epoch, never carried over: a resumed run draws the same numbers
as an uninterrupted one, without a saved generator.
"""

from __future__ import annotations

import hashlib

import torch


def stream_seed(seed: int, *purpose: object) -> int:
    """The seed of one purpose, e.g. the views of epoch 3: independent of all other purposes."""
    text = "/".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


def stream(seed: int, *purpose: object) -> torch.Generator:
    """A separate generator for one purpose."""
    return torch.Generator().manual_seed(stream_seed(seed, *purpose))
