"""Arguments of the Python functions that may be one value, several, or the command line's text."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from ssmlbench.core.errors import UserError

T = TypeVar("T", str, int, float)


def several(value: Any, kind: type[T], name: str) -> tuple[T, ...]:
    """Turn None, one value, an iterable of values or a text such as `0.05,0.1` into a tuple."""
    if value is None:
        return ()
    if isinstance(value, str):
        parts: list[Any] = [part.strip() for part in value.split(",") if part.strip()]
    elif isinstance(value, Iterable):
        parts = list(value)
    else:
        parts = [value]
    if not parts:
        raise UserError(f"{name} is empty; leave it out, or give at least one value")
    return tuple(_one(part, kind, name) for part in parts)


def _one(value: Any, kind: type[T], name: str) -> T:
    allowed = {str: (str, Path), int: (int, str), float: (int, float, str)}[kind]
    expected = {str: "a text", int: "a whole number", float: "a number"}[kind]
    try:
        if (not isinstance(value, bool) and isinstance(value, allowed)) or _is_numpy(value, kind):
            return kind(value)
    except ValueError:
        pass
    raise UserError(f"{name}={value!r}: must be {expected}, or several")


def _is_numpy(value: Any, kind: type[Any]) -> bool:
    """Whether it is a NumPy number, e.g. of an `arange`."""
    return kind is not str and getattr(type(value), "__module__", "") == "numpy"
