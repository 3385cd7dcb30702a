"""Where the built-in plugins lie, and where prepared data and cached features go."""

from __future__ import annotations

import os
from pathlib import Path


def builtin_root() -> Path:
    """What holds methods/, datasets/ and leaderboards/: inside the wheel, or the checkout's root."""
    package = Path(__file__).resolve().parent.parent
    packed = package / "_builtin"
    return packed if packed.is_dir() else package.parent


def cache_root() -> Path:
    """Where prepared data lives: SSMLBENCH_CACHE, or the user's cache folder."""
    chosen = os.environ.get("SSMLBENCH_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ssmlbench"
