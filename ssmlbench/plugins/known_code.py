"""Tells whether all code on the stack is of installed files: a plugin can name any file as its code's."""

from __future__ import annotations

import _imp
import os
import site
from collections.abc import Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from types import CodeType, FrameType

from ssmlbench.core.process_environment import environment_without_plugins
from ssmlbench.core.protected_files import code_folders

FROZEN = "<frozen "
"""The beginning of the file name of modules that are in the interpreter itself."""


def is_known_code(
    event: str, frame: FrameType | None, outermost: CodeType | None, plugins: frozenset[str]
) -> bool:
    """Whether code of installed files caused an audit event: all that is on the stack.

    frame: the topmost one. outermost: the code of the lowest frame that matters; None: all do. plugins:
    plugin files; a folder of the import path that holds one may hold more code of its author.
    Down to the topmost one of this tool, each also has to name what it calls: Python may call a function at
    any moment (finalizers, handlers of signals), which a plugin has left for it.
    """
    called: tuple[str, ...] = (event,) if event == "open" else ()
    by_tool = False
    while frame is not None and frame.f_code is not outermost:
        code = frame.f_code
        if not _is_of_its_file(code.co_filename, code, plugins):
            return False
        if not by_tool and called and not _names(code, called):
            return False
        by_tool = by_tool or os.path.realpath(code.co_filename).startswith(code_folders()[0])
        called, frame = tuple(code.co_qualname.split(".")), frame.f_back
    return by_tool


@cache
def _names(code: CodeType, called: tuple[str, ...]) -> bool:
    """Whether code has one of the names: of a function that it is said to call, and of its class."""
    known = {*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars}
    return not known.isdisjoint(called)


@cache
def _is_of_its_file(file: str, code: CodeType, plugins: frozenset[str]) -> bool:
    """Whether a file of an installed module has this code: it does nothing that this module does not do."""
    if file.startswith(FROZEN):
        return code in _frozen_codes(file[len(FROZEN) : -1])
    return os.path.realpath(file).startswith(_installed_in(plugins)) and code in _codes_of(file)


@cache
def _frozen_codes(module: str) -> frozenset[CodeType]:
    try:
        return frozenset(_all_in(_imp.get_frozen_object(module)))
    except ImportError:
        return frozenset()


@cache
def _codes_of(file: str) -> frozenset[CodeType]:
    try:
        code = SourceFileLoader("", file).get_code("")
    except (ImportError, OSError, SyntaxError, ValueError):
        return frozenset()
    return frozenset(_all_in(code)) if code is not None else frozenset()


@cache
def _installed_in(plugins: frozenset[str]) -> tuple[str, ...]:
    """The folders of code that is not a plugin's: on clusters, libraries are often in PYTHONPATH."""
    _, _, imported_from = environment_without_plugins()
    entries = (os.path.realpath(entry) for entry in (*site.getsitepackages(), *imported_from))
    others = (f"{entry.rstrip(os.sep)}{os.sep}" for entry in entries)
    files = [os.path.realpath(file) for file in plugins]
    return (*code_folders(), *(o for o in others if not any(f.startswith(o) for f in files)))


def _all_in(code: CodeType) -> Iterator[CodeType]:
    """The code of a module and of all functions and classes in it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _all_in(part)
