"""What every format prints: sections of tables with notes, and the same as flat records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

DASH = "–"


@dataclass(frozen=True)
class Entry:
    """One cell of a table; places 1 and 2 of a column are set off."""

    text: str
    place: int = 0


@dataclass(frozen=True)
class Panel:
    headers: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    left: int = 1  # how many columns, from the first, are text


@dataclass(frozen=True)
class Section:
    """A title, its tables, and what must be said beside them."""

    title: str
    panels: Sequence[Panel]
    notes: Sequence[str] = ()
    warning: str = ""


@dataclass
class Page:
    """All that one command shows. Text formats print the sections, CSV and JSON the records."""

    sections: list[Section] = field(default_factory=list)
    records: list[Mapping[str, Any]] = field(default_factory=list)
    records_name: str = "cells"
    more: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)  # JSON only

    def add(self, other: Page) -> None:
        """Go on with another page's sections; its records too, where they are of the same kind."""
        self.sections += other.sections
        if other.records_name == self.records_name:
            self.records += other.records
        elif other.records:
            self.more[other.records_name] = other.records
        self.more.update(other.more)


def texts(*values: object) -> list[Entry]:
    return [value if isinstance(value, Entry) else Entry(str(value)) for value in values]
