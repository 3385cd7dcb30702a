"""Counts and shortened lists in messages and tables: `1 run`, `2,000 runs`, `a, b, …`, ` and 3 more`."""

from __future__ import annotations

from collections.abc import Sequence, Sized


def counted(count: int, noun: str) -> str:
    """The count and its noun, in the plural unless it is one."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def first_of(items: Sequence[str], shown: int) -> str:
    """The first items with commas between them, and `…` if there are more than `shown`."""
    return ", ".join(items[:shown]) + (", …" if len(items) > shown else "")


def and_more(items: Sized, shown: int) -> str:
    """` and 3 more` after the first `shown` items; empty if these are all."""
    return f" and {len(items) - shown:,} more" if len(items) > shown else ""
