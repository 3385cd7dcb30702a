"""The folders of built-in plugins and of the cache, and paths as users type and read them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ssmlbench.core.errors import UserError, disk_error
from ssmlbench.core.process_environment import variable

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""The start of `s3://bucket/results`, of which a Path keeps one slash; a drive has one letter."""


def builtin_root() -> Path:
    """The folder with methods/, datasets/ and leaderboards/: inside the wheel, or the checkout's root."""
    package = Path(__file__).resolve().parent.parent
    packed = package / "_builtin"
    return packed if packed.is_dir() else package.parent


def cache_root() -> Path:
    """The folder of prepared data and caches: SSMLBENCH_CACHE, or the user's cache folder."""
    chosen = variable("SSMLBENCH_CACHE")
    return from_home(chosen) if chosen else usual_cache_root()


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


def paths_below(folder: Path) -> Iterator[Path]:
    """Every file and folder below a folder; links to folders are not followed.

    An OSError if a folder cannot be listed: `rglob` leaves out what is in it, without a word.
    """

    def stop(error: OSError) -> None:
        raise error

    for parent, folders, files in os.walk(folder, onerror=stop):
        yield from (Path(parent, name) for name in (*folders, *files))


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


def absolute(path: Path | str) -> Path:
    """The absolute path, without links and ~; a UserError if no file can have it."""
    if ADDRESS.match(str(path)):
        raise UserError(
            f"{path}: an address, and no path on this machine; copy the files here first"
        )
    try:
        found = from_home(path).resolve()
        found.exists()
        return found
    except FileNotFoundError:  # the working folder was deleted: the command line says so
        raise
    except OSError as error:  # a name that is too long
        raise UserError(disk_error(error)) from None
    except RuntimeError:
        raise UserError(f"{path}: its links lead in a circle; choose another path") from None
    except ValueError:  # a null byte
        raise UserError(f"{str(path)!r}: no file has such a name") from None


def usable(path: Path | str) -> Path:
    """The path as it was given, with ~ replaced; a UserError as for `absolute`."""
    absolute(path)
    return from_home(path)


def folder_of_data(typed: Path | str | None) -> Path | None:
    """The folder of `--data-dir`; a UserError if there is none of that name."""
    if typed is None:
        return None
    if (folder := usable(typed)).is_dir():
        return folder
    raise UserError(f"--data-dir {typed}: there is no such folder; it holds a folder per data set")
