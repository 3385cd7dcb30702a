"""Numbers that users and their files write, whole ones above all."""

from __future__ import annotations

from collections.abc import Iterable

MOST_DIGITS = 18
"""Every number of so many digits fits into 64 bits."""


def whole_number(text: str) -> int | None:
    """The number that up to 18 decimal digits spell; None for any other text.

    Python's int() raises an error above 4,300 digits, and takes signs, spaces and underscores.
    """
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


def in_usual_digits(text: str) -> bool:
    """Whether a number is spelled as other programs do it.

    Python also reads digits of other scripts, and 0_1, which is more likely 0.1, as 1.
    """
    return text.isascii() and "_" not in text


def in_order(names: Iterable[str]) -> list[str]:
    """Names sorted as numbers if all of them are whole numbers (2 before 10), else as text."""
    numbers = {name: whole_number(name) for name in names}
    if None in numbers.values():
        return sorted(numbers)
    return sorted(numbers, key=lambda name: (numbers[name], name))
