"""The environment, folder and import path of this process, without what plugin files changed in them.

The judge of a run starts with these: a plugin that is imported to read its declarations cannot choose
what the judge imports.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_before: dict[str, str | None] = {}
_added: list[str] = []
_folder: list[str] = []


@contextmanager
def noted_changes() -> Iterator[None]:
    """Note what changes in this block, in which a plugin file is imported."""
    environment, folder, path = here()
    try:
        yield
    finally:
        for name in environment.keys() | os.environ.keys():
            if environment.get(name) != os.environ.get(name):
                _before.setdefault(name, environment.get(name))
        _added.extend(place for place in sys.path if place not in path)
        if here()[1] != folder and not _folder:
            _folder.append(folder)


def here() -> tuple[dict[str, str], str, list[str]]:
    """Environment, folder and import path as they are."""
    try:
        folder = str(Path.cwd())
    except FileNotFoundError:  # it was deleted
        folder = os.sep
    return dict(os.environ), folder, list(sys.path)


def before_plugins() -> tuple[dict[str, str], str, list[str]]:
    """Environment, folder and import path as they would be had no plugin changed them."""
    environment, folder, path = here()
    for name, value in _before.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    return environment, next(iter(_folder), folder), [p for p in path if p not in _added]
