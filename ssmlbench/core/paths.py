"""The folders of built-in plugins and of the cache, and paths as users type and read them."""

from __future__ import annotations

import os
from pathlib import Path

from ssmlbench.core.errors import UserError


def builtin_root() -> Path:
    """The folder with methods/, datasets/ and leaderboards/: inside the wheel, or the checkout's root."""
    package = Path(__file__).resolve().parent.parent
    packed = package / "_builtin"
    return packed if packed.is_dir() else package.parent


def cache_root() -> Path:
    """The folder of prepared data and caches: SSMLBENCH_CACHE, or the user's cache folder."""
    chosen = os.environ.get("SSMLBENCH_CACHE")
    if chosen:
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ssmlbench"
    except RuntimeError:
        raise UserError(
            "this user has no home folder; set SSMLBENCH_CACHE to a folder for prepared data"
        ) from None


def near(folder: Path) -> Path:
    """The path relative to the working directory, if it is below it: shorter to read and to type."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def from_home(path: Path | str) -> Path:
    """The path with ~ replaced by the home folder; a UserError for an unknown user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UserError(
            f"{path}: there is no such user; write ./~… for a file of that name"
        ) from None
