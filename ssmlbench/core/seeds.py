"""Every random stream of a run, named by what it is for.

Streams are derived from the seed and the epoch, never carried over: a resumed run needs no saved
generator to draw what an uninterrupted one would have drawn.
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
