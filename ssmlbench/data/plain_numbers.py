"""Numbers in the cells of users' files, read as other programs read them."""

from __future__ import annotations

from typing import Any


def plain_float(value: Any) -> float:
    """A number, or what a text spells, as other programs write it: `1_000` is one in Python only."""
    if isinstance(value, str) and "_" in value:
        raise ValueError(value)
    try:
        return float(value)
    except OverflowError as error:  # a whole number of hundreds of digits
        raise ValueError(value) from error


def is_number(value: Any) -> bool:
    """Whether a value is a number, or a text that spells one."""
    try:
        plain_float(value)
    except (TypeError, ValueError):
        return False
    return True
