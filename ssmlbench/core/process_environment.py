"""The environment, folder and import path of this process, with and without the changes of plugin files.

The judge of a run starts without them: a plugin that is imported to read its declarations cannot choose
the modules that the judge imports.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ProcessEnvironment = tuple[dict[str, str], str, list[str]]
"""Environment variables, working folder, import path."""

_before: dict[str, str | None] = {}  # variables that plugins changed, with their values before
_added: list[str] = []  # entries of the import path that plugins added
_folder: list[str] = []  # the working folder before a plugin changed it


@contextmanager
def record_changes() -> Iterator[None]:
    """Record the changes in this block, in which a plugin file is imported."""
    environment, folder, path = present_environment()
    try:
        yield
    finally:
        for name in environment.keys() | os.environ.keys():
            if environment.get(name) != os.environ.get(name):
                _before.setdefault(name, environment.get(name))
        _added.extend(entry for entry in sys.path if entry not in path)
        if present_environment()[1] != folder and not _folder:
            _folder.append(folder)


def present_environment() -> ProcessEnvironment:
    """The environment of this process as it is now."""
    try:
        folder = str(Path.cwd())
    except FileNotFoundError:  # it was deleted
        folder = os.sep
    return dict(os.environ), folder, list(sys.path)


def environment_without_plugins() -> ProcessEnvironment:
    """The environment of this process without the changes of plugins."""
    environment, folder, path = present_environment()
    for name, value in _before.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    return environment, next(iter(_folder), folder), [p for p in path if p not in _added]
