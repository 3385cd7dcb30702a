"""The folders of built-in plugins and of the cache, and paths as users type and read them."""

from __future__ import annotations

from pathlib import Path

from ssmlbench.core.errors import UserError
from ssmlbench.core.process_environment import variable


def builtin_root() -> Path:
    """The folder with methods/, datasets/ and leaderboards/: inside the wheel, or the checkout's root."""
    package = Path(__file__).resolve().parent.parent
    packed = package / "_builtin"
    return packed if packed.is_dir() else package.parent


def cache_root() -> Path:
    """The folder of prepared data and caches: SSMLBENCH_CACHE, or the user's cache folder."""
    chosen = variable("SSMLBENCH_CACHE")
    return Path(chosen) if chosen else usual_cache_root()


def usual_cache_root() -> Path:
    """The folder of prepared data and caches where SSMLBENCH_CACHE is not set."""
    try:
        return Path(variable("XDG_CACHE_HOME") or Path.home() / ".cache") / "ssmlbench"
    except RuntimeError:
        raise UserError(
            "this user has no home folder; set SSMLBENCH_CACHE to a folder for prepared data"
        ) from None


def working_folder_exists() -> bool:
    """Whether the folder that this process is in has not been deleted."""
    try:
        return Path.cwd().is_dir()
    except OSError:
        return False


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


def folder_of_data(typed: Path | str | None) -> Path | None:
    """The folder of `--data-dir`; a UserError if there is none of that name."""
    if typed is None:
        return None
    if (folder := from_home(typed)).is_dir():
        return folder
    raise UserError(f"--data-dir {typed}: there is no such folder; it holds a folder per data set")
