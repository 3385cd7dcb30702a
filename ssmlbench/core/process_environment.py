"""The environment of this process without the changes of plugin files: variables, folder, import path.

The processes of a run start without them: a plugin that is imported to read its declarations chooses
neither the modules that the judge imports nor the cache whose labels are sealed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType

ProcessEnvironment = tuple[dict[str, str], str, list[str]]
"""Environment variables, working folder, import path."""

_changes: dict[str, tuple[str | None, str | None]] = {}
"""Variables that plugins changed when they were imported: the values before and after."""
_added: list[str] = []  # entries of the import path that plugins added
_folder: list[str] = []  # the working folder before a plugin changed it
_fixed: ProcessEnvironment | None = None
_code: CodeType | None = None  # of the function that keeps it


@contextmanager
def fixed_environment(**variables: str) -> Iterator[None]:
    """Keep the environment as it is now, with these variables, whatever code changes it in this block."""
    global _fixed, _code  # noqa: PLW0603
    before = _fixed, _code
    environment, folder, path = environment_without_plugins()
    _fixed = environment | variables, folder, path
    _code = sys._getframe(2).f_code
    try:
        yield
    finally:
        _fixed, _code = before


def is_fixed() -> bool:
    """Whether the environment is kept: this is the process of a command, not of a user's program."""
    return _fixed is not None


def present_command() -> object:
    """What identifies the block of `fixed_environment` that this is; None outside of one."""
    return _fixed


@contextmanager
def record_changes() -> Iterator[None]:
    """Record the changes in this block, in which a plugin file is imported."""
    environment, folder, path = _present()
    clean, _, _ = environment_without_plugins()
    try:
        yield
    finally:
        now, present_folder, _ = _present()
        for name in environment.keys() | now.keys():
            if environment.get(name) != now.get(name):
                _changes[name] = clean.get(name), now.get(name)
        _added.extend(entry for entry in sys.path if entry not in path)
        if present_folder != folder and not _folder:
            _folder.append(folder)


def _present() -> ProcessEnvironment:
    try:
        folder = str(Path.cwd())
    except FileNotFoundError:  # it was deleted
        folder = os.sep
    return dict(os.environ), folder, list(sys.path)


def code_of_command() -> CodeType | None:
    """The code of the function with that block, which is below all of the command's code on the stack."""
    return _code


def environment_without_plugins() -> ProcessEnvironment:
    """The environment of this process without the changes of plugins."""
    if _fixed is not None:
        environment, folder, path = _fixed
        return dict(environment), folder, list(path)
    environment, folder, path = _present()
    for name in _changes:
        environment.pop(name, None)
        if (value := variable(name)) is not None:
            environment[name] = value
    return environment, next(iter(_folder), folder), [p for p in path if p not in _added]


def variable(name: str) -> str | None:
    """An environment variable without the changes of plugins; None if it is not set."""
    if _fixed is not None:
        return _fixed[0].get(name)
    value = os.environ.get(name)
    before, after = _changes.get(name, (None, None))
    return before if name in _changes and value == after else value
