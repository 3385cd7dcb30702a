"""The names in labels.txt, and ids of labels, which count its lines from 0."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ssmlbench.core.errors import UserError
from ssmlbench.core.whole_numbers import whole_number
from ssmlbench.data.adapter import numbered_lines
from ssmlbench.data.plain_numbers import plain_float
from ssmlbench.data.text_files import check_plain
from ssmlbench.data.user_files import label_file

HEADINGS = ("label", "labels", "name", "names", "class", "classes", "category", "categories")
"""First lines, in lower case, that name what follows: `label_name` too."""
NUMBERED = re.compile(r"(\d{1,18})\s*[\s:;,.)|=-]\s*\S")
"""A line that begins with a number of its own: `3: grain`."""
WHOLE = re.compile(r"[+-]?\d{1,15}(?:\.0*)?")
"""A whole number in any of its spellings; longer ones are not told apart by a float."""


def read_names(folder: Path) -> list[str]:
    """The lines of labels.txt in a folder; empty if there is no such file."""
    file = label_file(folder)
    if file is None:
        return []
    check_plain(file)
    lines = [line.strip() for _, line in numbered_lines(file)]
    while lines and not lines[-1]:
        lines.pop()
    if "" in lines:
        raise UserError(
            f"{file} line {lines.index('') + 1}: an empty line, and ids of labels count the lines; take it "
            "out"
        )
    return lines


def are_numbers(names: Sequence[str], found: Sequence[str], where: str) -> bool:
    """Whether the names in labels.txt are the numbers that rows have, and not 0, 1, 2 in their order.

    A UserError if only some of the numbers are names.
    """
    if not any(whole_number(name) not in (None, k) for k, name in enumerate(names)):
        return False
    both = {*names} & {*found}
    if both and (absent := [number for number in found if number not in both]):
        raise mixed_numbers(f"{where}: label {absent[0]}")
    return bool(both)


def mixed_numbers(where: str) -> UserError:
    """The error for numbers of which some are names, and others count the names."""
    return UserError(
        f"{where}: some labels are numbers in labels.txt, and others only count its lines from 0; "
        "write names in all rows"
    )


def check_counted(names: Sequence[str], where: str) -> None:
    """Raise a UserError if ids of labels may not count the lines of labels.txt.

    Its first line names what follows, or its lines have other numbers than 0, 1, 2 …
    """
    first = names[0] if names else ""
    if first.startswith("# ") or {*re.split(r"[\W_]+", first.lower())} <= {*HEADINGS}:
        raise UserError(
            f"{where}: ids of labels count the lines of labels.txt from 0, and the first line is "
            f"{first[:40]!r}; take it out, or write names instead of ids"
        )
    numbers = [int(match[1]) for name in names if (match := NUMBERED.match(name))]
    if len(numbers) == len(names) > 1 and numbers != [*range(len(names))]:
        wrong = next(k for k, number in enumerate(numbers) if number != k)
        raise UserError(
            f"{where}: ids of labels count the lines of labels.txt from 0, and line {wrong} is numbered "
            f"{numbers[wrong]}; take the numbers out, or write names instead of ids"
        )


@dataclass
class LabelForms:
    """How labels beside declared names were written so far."""

    ids: int = 0  # those that count the names
    zero: bool = False  # whether 0 was one of them
    number_names: int = 0  # names that are the number of another label's place

    def add_id(self, number: int) -> None:
        """Note an id."""
        self.ids, self.zero = self.ids + 1, self.zero or number == 0

    def add_name(self, name: str, position: int) -> None:
        """Note a name."""
        self.number_names += whole_number(name) not in (None, position)

    def check(self, names: Sequence[str], where: str) -> None:
        """Raise a UserError if ids do not count the names, or if numbers were both."""
        if self.ids and self.number_names:
            raise mixed_numbers(where)
        if self.ids:
            check_counted(names, where)


def same_number(names: set[str]) -> tuple[str, str] | None:
    """Two names that are one number: 1 and 1.0, or 1 and 01."""
    seen: dict[float, str] = {}
    for name in sorted(filter(WHOLE.fullmatch, names)):
        if (first := seen.setdefault(plain_float(name), name)) != name:
            return first, name
    return None
