"""Counts in messages and tables: `1 run`, `2,000 runs`."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """The count and its noun, in the plural unless it is one."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
