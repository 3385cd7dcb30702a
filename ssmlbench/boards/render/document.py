"""The document that every format prints: sections of tables with notes, and the same as flat records."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

DASH = "–"
"""Shown in a cell without a value."""


@dataclass(frozen=True)
class Entry:
    """One cell of a table; the first and the second place of a column are highlighted."""

    text: str
    place: int = 0  # 0: not ranked


@dataclass(frozen=True)
class Panel:
    """One table: its column headers and its rows."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    left: int = 1  # the first `left` columns hold text, the others numbers
    groups: Sequence[str] = ()  # of each column: the heading it shares with its neighbours, or ""
    title: str = ""  # what it shows, where a section has several
    breaks: Sequence[int] = ()  # rows before which there is a rule

    @property
    def flat_headers(self) -> list[str]:
        """Each column's header with its group's heading before it."""
        groups = self.groups or [""] * len(self.headers)
        return [f"{g} {h}".strip() for g, h in zip(groups, self.headers, strict=True)]

    @property
    def spans(self) -> list[tuple[str, int]]:
        """The groups' headings with the number of columns below each; empty without groups."""
        return [(name, len(list(same))) for name, same in itertools.groupby(self.groups)]

    def part(self, columns: Sequence[int]) -> Panel:
        """The panel with its text columns and these of the others."""
        kept = [*range(self.left), *columns]
        return replace(
            self,
            headers=[self.headers[i] for i in kept],
            rows=[[row[i] for i in kept] for row in self.rows],
            groups=[self.groups[i] for i in kept] if self.groups else (),
        )


@dataclass(frozen=True)
class TableSection:
    """A title, its tables, and the notes that a reader of them needs."""

    title: str
    panels: Sequence[Panel]
    notes: Sequence[str] = ()
    warning: str = ""
    key: str = ""  # a short name for references; by default its title


@dataclass
class Document:
    """The output of one command. Text formats print the sections, CSV and JSON the records."""

    sections: list[TableSection] = field(default_factory=list)
    records: list[Mapping[str, Any]] = field(default_factory=list)
    records_name: str = "cells"
    extra_records: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    """Records of other kinds, by name; only JSON has room for them."""

    def add(self, other: Document) -> None:
        """Append another document: its sections, and its records under their name."""
        self.sections += other.sections
        if other.records_name == self.records_name:
            self.records += other.records
        elif other.records:
            self.extra_records[other.records_name] = other.records
        self.extra_records.update(other.extra_records)


def texts(*values: object) -> list[Entry]:
    """Return the values as table cells; an `Entry` stays as it is."""
    return [value if isinstance(value, Entry) else Entry(str(value)) for value in values]
