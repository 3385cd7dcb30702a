"""Finds what a plugin file has changed in the modules of this tool and its built-in plugins.

The process of a command plans the runs of all methods: a changed function there would change their specs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator
from types import FunctionType, ModuleType
from typing import Any

from ssmlbench.core.paths import builtin_root

TOOL = "ssmlbench"

PLAIN = (bool, int, float, str, tuple, frozenset)
"""The constants of classes: their hyper-parameters and declarations."""

ToolState = dict[tuple[str, str], object]
"""Module or class, and name in it → what tells whether its value is still the same."""


def tool_state(*modules: ModuleType) -> ToolState:
    """The functions, classes and constants of these modules; of none, of the tool's that are loaded now."""
    return {
        (module.__name__, name): _identity(value)
        for module in modules or _modules()
        for name, value in _named(module)
        if name.isupper()
        or not name.startswith("_")  # those hold what changes while a command runs
        or (getattr(value, "__qualname__", None) == name and not isinstance(value, type))
    }


def first_change(before: ToolState, files: Collection[str]) -> str | None:
    """The name of a function, class or constant that is not what it was; None if there is none.

    files: of the plugins. Their functions in a module that was loaded meanwhile are a change too.
    """
    for module in _modules():
        for name, value in _named(module):
            place = (module.__name__, name)
            if place in before and before[place] != _identity(value):
                return ".".join(place)
            owner = (module.__name__, name.rpartition(".")[0])
            if place not in before and owner in before:  # it hides what the class inherits
                return ".".join(place)
            if isinstance(value, FunctionType) and value.__code__.co_filename in files:
                return ".".join(place)
    return None


def _modules() -> list[ModuleType]:
    """The loaded modules of this tool and of its built-in methods and data sets."""
    builtin = tuple(f"{builtin_root() / name}{os.sep}" for name in ("methods", "datasets"))
    return [
        module
        for name, module in sys.modules.copy().items()  # a finalizer may import meanwhile
        if isinstance(module, ModuleType)
        and (
            name.partition(".")[0] == TOOL or str(vars(module).get("__file__")).startswith(builtin)
        )
    ]


def _named(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name, value in vars(module).copy().items():
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield from _parts(value, name)
        if name.isupper() or callable(value):
            yield name, value


def _parts(cls: type[Any], name: str) -> Iterator[tuple[str, Any]]:
    """The functions of a class and of the classes in it, such as a method's Config, and plain constants."""
    for part, value in dict(vars(cls)).items():
        if isinstance(value, FunctionType | property | staticmethod | classmethod):
            yield f"{name}.{part}", value
        elif isinstance(value, type) and value.__qualname__ == f"{cls.__qualname__}.{part}":
            yield from _parts(value, f"{name}.{part}")
        elif isinstance(value, PLAIN) and not part.startswith("_"):
            yield f"{name}.{part}", value


def _identity(value: Any) -> object:
    """What differs if a value is replaced, its code is, or something is put into it."""
    if isinstance(value, FunctionType):
        return id(value), id(value.__code__), id(value.__defaults__), id(value.__kwdefaults__)
    if isinstance(value, dict):
        return id(value), tuple((key, id(part)) for key, part in value.items())
    if isinstance(value, list):
        return id(value), tuple(map(id, value))
    return id(value)
