"""What a path that plugin code gives to the system may mean, for the audit hooks that watch such code."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

OPEN_FILES = "/proc/self/fd"
"""Linux's list of what this process has open."""


def can_list_open_files() -> bool:
    """Whether this system lists what a process has open."""
    return os.path.isdir(OPEN_FILES)  # noqa: PTH112


def path_meanings() -> Callable[[Any], list[str]]:
    """The function that gives the real paths that a path, or the number of an open file, may mean.

    A relative path may be meant in any folder that is open: audit events do not always say in which. What
    it uses is bound here, and it calls no built-in function: plugins may change both.
    """
    realpath, join, isabs, fsdecode = os.path.realpath, os.path.join, os.path.isabs, os.fsdecode
    isdir = os.path.isdir
    listdir, readlink, is_a, integer = os.listdir, os.readlink, isinstance, int
    open_files, listed = OPEN_FILES, can_list_open_files()

    def target(number: int | str) -> str:
        try:
            return readlink(f"{open_files}/{number}")
        except OSError:  # it was closed meanwhile
            return ""

    def meanings(path: Any) -> list[str]:
        if is_a(path, integer):
            return [target(path)]
        text = fsdecode(path)
        found = [realpath(text)]
        if listed and not isabs(text):
            folders = [target(number) for number in listdir(open_files)]
            found += [realpath(join(folder, text)) for folder in folders if isdir(folder)]
        return found

    return meanings
