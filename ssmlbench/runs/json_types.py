"""Checks values of a JSON file against the types that a TypedDict declares.

Unknown fields are ignored, as newer versions may write them; missing fields are not checked here.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping
from typing import Any

from ssmlbench.core.hyperparameters import alternatives

JSON_TYPES = {float: (float, int), type(None): (type(None),)}
"""The types that JSON gives for a declared type, if not that type alone."""


def wrong_type(values: Mapping[str, Any], declared: type, where: str = "") -> str:
    """What is wrong with the first field that has another type than declared; empty if all are right.

    None is taken for a field that is not there. where: the name of the object, with a dot.
    """
    for name, hint in _hints(declared).items():
        value = values.get(name)
        if value is not None and (wrong := _wrong(value, hint, f"{where}{name}")):
            return wrong
    return ""


@functools.cache
def _hints(declared: type) -> dict[str, Any]:
    return typing.get_type_hints(declared)


def _wrong(value: Any, hint: Any, name: str) -> str:
    if hint is Any:
        return ""
    if typing.is_typeddict(hint):
        return wrong_type(value, hint, f"{name}.") if type(value) is dict else _line(name, value)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is dict:
        if type(value) is not dict:
            return _line(name, value)
        wrongs = (_wrong(own, inner[1], f"{name}.{key}") for key, own in value.items())
        return next(filter(None, wrongs), "")
    if origin is list:
        if type(value) is not list:
            return _line(name, value)
        allowed = _allowed(inner[0])
        return next((_line(name, own) for own in value if type(own) not in allowed), "")
    return "" if type(value) in _allowed(hint) else _line(name, value)


@functools.cache
def _allowed(hint: Any) -> frozenset[type]:
    return frozenset(t for part in alternatives(hint) for t in JSON_TYPES.get(part, (part,)))


def _line(name: str, value: Any) -> str:
    return f"{name} has {str(value)[:60]!r} in it, which is not of the type expected"
