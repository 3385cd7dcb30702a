"""Hyper-parameters of a method's Config: how they are declared, parsed, printed and drawn.

`option(1.0, "λ: …", search=between(0.1, 10.0, log=True))` declares one with the range that
`ssmlbench tune` draws from. A hyper-parameter without a range is never drawn.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from ssmlbench.core.errors import UserError
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.core.whole_numbers import in_usual_digits

TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
"""The words for true and false, in lower case."""


@dataclass(frozen=True)
class Between:
    """Numbers from low to high, both included: whole ones if both are written as whole numbers."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high or not math.isfinite(self.high - self.low):
            raise ValueError(f"between({self.low}, {self.high}): the first must be the lower one")
        if self.log and self.low <= 0:
            raise ValueError(f"between({self.low}, …, log=True): a log range begins above 0")

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are drawn."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def draw(self, random: Random) -> float:
        """One number of the range."""
        if self.whole and not self.log:
            return random.randint(int(self.low), int(self.high))
        if self.log:
            value = math.exp(random.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = random.uniform(self.low, self.high)
        # Four digits, so that a recorded value is easy to type.
        rounded = round(value) if self.whole else float(f"{value:.4g}")
        return min(max(rounded, self.low), self.high)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high

    def fits(self, kind: Any) -> bool:
        """Whether everything in the range is of a field's type."""
        return (int if self.whole else float) in alternatives(kind)

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}{', log' if self.log else ''}"


@dataclass(frozen=True)
class Choice:
    """A few values, each equally likely."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(self.values) < 2:
            raise ValueError(f"choice{self.values}: give at least two values")

    def draw(self, random: Random) -> Any:
        """One of the values."""
        return random.choice(self.values)

    def __contains__(self, value: object) -> bool:
        return value in self.values

    def fits(self, kind: Any) -> bool:
        """Whether every value is of a field's type."""
        if typing.get_origin(kind) is Literal:
            return set(self.values) <= set(typing.get_args(kind))
        return all(type(value) in alternatives(kind) for value in self.values)

    def __str__(self) -> str:
        return ", ".join(map(as_typed, self.values))


Search = Between | Choice


def between(low: float, high: float, *, log: bool = False) -> Between:
    """Let `ssmlbench tune` draw from low to high; whole numbers if both are written as such."""
    return Between(low, high, log)


def choice(*values: Any) -> Choice:
    """Let `ssmlbench tune` draw one of a few values."""
    return Choice(values)


def as_typed(value: Any) -> str:
    """The text of a value for `--set`: `true`, `none`, `0.5`. Parsing it gives the same value."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float) and float(short := f"{value:g}") == value:
        return short
    return str(value)


def alternatives(kind: Any) -> tuple[Any, ...]:
    """The types that an annotation allows: `float | None` → (float, NoneType)."""
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return typing.get_args(kind) if union else (kind,)


def search_of(field: dataclasses.Field[Any]) -> Search | None:
    """The declared range of a hyper-parameter, if it has one."""
    return field.metadata.get("search")


def ranges(config: type) -> dict[str, Search]:
    """The declared ranges of a Config, by hyper-parameter."""
    declared = {field.name: search_of(field) for field in dataclasses.fields(config)}
    return {name: search for name, search in declared.items() if search is not None}


def faults(config: type) -> list[str]:
    """The mistakes in a Config's ranges, a sentence each."""
    kinds = typing.get_type_hints(config)
    mistakes = []
    for field in dataclasses.fields(config):
        search = search_of(field)
        if search is None:
            continue
        if not isinstance(search, Between | Choice):
            mistakes.append(f"{field.name}: search must be between(…) or choice(…)")
        elif not search.fits(kinds[field.name]):
            mistakes.append(
                f"{field.name}: search ({search}) does not fit its type; whole numbers are written "
                "1, others 1.0"
            )
        elif field.default not in search:
            text = f"{field.name}: its default {field.default} is not in search ({search})"
            mistakes.append(text)
    return mistakes


def parse_config(cls: type, texts: Mapping[str, str], owner: str) -> Any:
    """Build the Config dataclass `cls` from `--set` texts, typed and checked field by field."""
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    values = {}
    for name, text in texts.items():
        if name not in fields:
            raise UserError(f"{owner} has no hyper-parameter {name!r}.{did_you_mean(name, fields)}")
        try:
            values[name] = _parse(text, hints[name])
        except ValueError as expected:
            example = f"e.g. --set {name}={as_typed(fields[name].default)}"
            raise UserError(
                f"{owner}: --set {name}={text}: must be {expected}, {example}"
            ) from None
    try:
        return cls(**values)
    except ValueError as error:
        raise UserError(f"{owner}: {error}") from None


def _parse(text: str, kind: Any) -> Any:
    """The value of a text; a ValueError with what was expected."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        typed = {as_typed(value): value for value in args}
        if text not in typed:
            raise ValueError(f"one of {', '.join(typed)}")
        return typed[text]
    if origin in (typing.Union, types.UnionType) and type(None) in args:
        if text.lower() == "none":
            return None
        return _parse(text, next(a for a in args if a is not type(None)))
    if kind is bool:
        if text.lower() not in TRUTH:
            raise ValueError("true or false")
        return TRUTH[text.lower()]
    if kind in (int, float):
        with suppress(ValueError, OverflowError):
            if in_usual_digits(text) and math.isfinite(number := kind(text)):
                return number + 0  # -0.0 is 0.0, which has the same runs
        raise ValueError("a whole number" if kind is int else "a number")
    return text


def option(default: Any, meaning: str, *, search: Search | None = None) -> Any:
    """Declare a hyper-parameter of a Config: its default, and its help in `ssmlbench methods NAME`.

    search: the range that `ssmlbench tune` draws from, e.g. between(0.1, 10.0, log=True); None: it is
    not tuned.
    """
    return dataclasses.field(default=default, metadata={"meaning": meaning, "search": search})
