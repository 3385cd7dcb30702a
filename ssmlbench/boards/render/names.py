"""The names of methods as a paper prints them: `CAP` for `cap`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from ssmlbench.core.paths import builtin_root

LONGEST = 14
"""Characters of a name that a method's file opens with."""


@dataclass(frozen=True)
class RowNames:
    """The names of rows: the code's, the papers', or the user's."""

    display: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)  # method or row → its name

    def of(self, name: str) -> str:
        """The name of a row, `cap (loss=bce) @3f2a91b 2026-11-16`, as it is shown."""
        if name in self.renamed:
            return self.renamed[name]
        method, space, rest = name.partition(" ")
        if method in self.renamed:
            method = self.renamed[method]
        elif self.display:
            method = display_name(method)
        return f"{method}{space}{rest}"


@cache
def display_name(method: str) -> str:
    """The name of a built-in method in papers; the name of another method stays as it is.

    It is the first word of the method's docstring, if that is a name, else it is spelled by rule.
    """
    file = builtin_root() / "methods" / f"{method}.py"
    if not file.is_file():
        return method
    first = re.split(r":|,|'s|\.", file.read_text(encoding="utf-8").lstrip('"'), maxsplit=1)[0]
    if len(first) <= LONGEST and _letters(method) in _letters(first):
        return first
    return method.upper() if len(method) <= 3 else method.replace("_", " ").capitalize()


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
