"""Arguments of the Python functions: their types, and those that may be one value or several."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ssmlbench.core.errors import UserError
from ssmlbench.core.hyperparameters import alternatives
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.core.whole_numbers import MOST_DIGITS, in_usual_digits

T = TypeVar("T", str, int, float)
V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])

EXPECTED = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    Mapping: "a dictionary whose keys are texts",
    Iterable: "several of them",
    types.NoneType: "None",
}
"""The types that `checked` knows, in the words of its messages."""
NUMPY_KINDS = {bool: "b", int: "iu", float: "iuf"}
"""The kinds of NumPy's numbers that count as Python's."""
LONGEST_SHOWN = 100
"""Characters of a wrong argument in a message."""


def checked(function: F) -> F:
    """Check the arguments of a public function by its annotations, before it does anything.

    An argument of another type is a UserError that names it. `Any` and `**options` are not checked.
    """
    signature = inspect.signature(function)
    named = {
        name for name, own in signature.parameters.items() if own.kind is not own.VAR_KEYWORD
    } - {"self"}

    @functools.wraps(function)
    def call(*values: Any, **options: Any) -> Any:
        given = signature.bind(*values, **options)
        hints = _hints(function)
        for name in named & given.arguments.keys():
            given.arguments[name] = _declared(given.arguments[name], hints[name], name)
        return function(*given.args, **given.kwargs)

    return typing.cast(F, call)


def no_such_argument(function: Callable[..., Any], name: str, options: Iterable[str]) -> UserError:
    """The error for a keyword that a function with `**options` does not take; options: those it takes."""
    parameters = inspect.signature(function).parameters.values()
    known = {*options, *(own.name for own in parameters if own.kind is not own.VAR_KEYWORD)}
    return UserError(f"{function.__name__}() has no argument {name!r}.{did_you_mean(name, known)}")


@functools.cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations; not when a module is imported, as they may name what is defined below."""
    return typing.get_type_hints(function)


def _declared(value: Any, hint: Any, name: str) -> Any:
    """The value, with a NumPy number as Python's; a UserError if its type is not declared."""
    kinds = [_class_of(part) for part in alternatives(hint)]
    if Any in kinds:
        return value
    if Path in kinds and isinstance(value, str) and not value:
        raise UserError(f"{name} is empty; leave it out, or give a path")
    for kind in kinds:
        if kind in NUMPY_KINDS and _is_numpy(value, kind):
            return kind(value)
        if _is_of(value, kind):
            return _not_too_large(value, name)
    expected = " or ".join(dict.fromkeys(EXPECTED[kind] for kind in kinds))
    raise UserError(f"{name}={shown(value)}: must be {expected}")


def _class_of(hint: Any) -> Any:
    """The class of EXPECTED that an annotation means; Any for all others."""
    origin = typing.get_origin(hint) or hint
    if inspect.isclass(origin) and origin not in EXPECTED:
        origin = next((k for k in (Mapping, Iterable) if issubclass(origin, k)), Any)
    return origin


def _is_of(value: Any, kind: Any) -> bool:
    if kind is Mapping:
        return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
    if kind is Iterable:
        return is_list(value)
    if kind in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if kind is float else kind)


NOT_LISTS = (str, bytes, bytearray, Mapping)
"""Types that one can iterate over and that are still one value, not several."""


def shown(value: Any) -> str:
    """A wrong argument, for a message: not too long, and even if it has no text."""
    try:
        text = repr(value)
    except Exception:  # of a class of the user, or a number of thousands of digits
        return f"<{type(value).__name__}>"
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def several(value: Any, kind: type[T], name: str) -> tuple[T, ...]:
    """Turn None, one value, an iterable of values or a text such as `0.05,0.1` into a tuple."""
    if value is None:
        return ()
    if isinstance(value, str):
        parts: list[Any] = [part.strip() for part in value.split(",") if part.strip()]
    elif is_list(value):
        parts = list(value)
    else:
        parts = [value]
    if not parts:
        raise UserError(f"{name} is empty; leave it out, or give at least one value")
    return tuple(_one(part, kind, name) for part in parts)


def is_list(value: Any) -> bool:
    """Whether an argument is several values. A NumPy array without dimensions only seems to be."""
    is_one = isinstance(value, NOT_LISTS) or getattr(value, "ndim", 1) == 0
    return isinstance(value, Iterable) and not is_one


def _one(value: Any, kind: type[T], name: str) -> T:
    allowed = {str: (str, Path), int: (int, str), float: (int, float, str)}[kind]
    expected = {str: "a text", int: "a whole number", float: "a number"}[kind]
    try:
        plain = not isinstance(value, bool) and isinstance(value, allowed)
        usual = kind is str or not isinstance(value, str) or in_usual_digits(value)
        if (plain and usual) or (kind is not str and _is_numpy(value, kind)):
            return _not_too_large(kind(value), name)
    except (ValueError, OverflowError):
        pass
    raise UserError(f"{name}={shown(value)}: must be {expected}, or several")


def _not_too_large(value: V, name: str) -> V:
    if isinstance(value, int) and abs(value) >= 10**MOST_DIGITS:
        raise UserError(f"{name}={shown(value)}: numbers of at most {MOST_DIGITS} digits")
    return value


def _is_numpy(value: Any, kind: type[Any]) -> bool:
    """Whether it is one NumPy number of a kind, e.g. of an `arange`."""
    if getattr(type(value), "__module__", "") != "numpy" or getattr(value, "ndim", 1):
        return False
    return value.dtype.kind in NUMPY_KINDS[kind]
