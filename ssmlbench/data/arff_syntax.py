"""The syntax of ARFF files: a header of attributes, then dense or sparse rows.

Files are read a line at a time, so that an error names its line and a bad row can be left out. Other
readers do not fit: liac-arff stops at the first bad row, and SciPy's refuses sparse files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ssmlbench.core.errors import UserError
from ssmlbench.data.adapter import numbered_lines
from ssmlbench.data.plain_numbers import is_number, plain_float
from ssmlbench.data.text_files import check_plain

QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
ATTRIBUTE = re.compile(rf"@attribute\s+({QUOTED}|\S+)\s+(.+)", re.IGNORECASE)
CELL = re.compile(rf"\s*(?:\d+\s+)?(?:{QUOTED})\s*(?=,|$)|[^,]*")
"""A quoted value, after its index in a sparse row, or anything up to the next comma."""
NUMERIC = ("numeric", "real", "integer")
MISSING = "?"


@dataclass(frozen=True)
class Attribute:
    """A column of the file."""

    name: str
    values: tuple[str, ...]  # the values of a nominal attribute; empty for a number
    # Value → the number that it spells or, for a word, its position. All values have their positions
    # if the position of a word is a number that another value spells, or two spell one number.
    codes: dict[str, float]

    @classmethod
    def nominal(cls, name: str, values: tuple[str, ...]) -> Attribute:
        """An attribute with a list of values."""
        positions = {value: float(k) for k, value in enumerate(values)}
        spelled = {v: number for v in values if (number := number_of(v)) is not None}
        words = positions.keys() - spelled.keys()
        clash = any(positions[word] in spelled.values() for word in words)
        clash = clash or len({*spelled.values()}) < len(spelled)
        return cls(name, values, positions if clash else positions | spelled)

    def coded_as(self, other: Attribute) -> Attribute:
        """The attribute with the codes of the same one in another file, whatever its order there."""
        return Attribute(self.name, self.values, other.codes)

    def number(self, text: str) -> float:
        """Read a number as it is, a nominal value as its code."""
        text = unquoted(text)
        if not self.values:
            return plain_float(text)
        if text not in self.codes:
            raise ValueError(text)
        return self.codes[text]

    @property
    def absent(self) -> float:
        """The value in a sparse row that does not name the attribute."""
        return self.codes[self.values[0]] if self.values else 0.0

    @property
    def recoded(self) -> bool:
        """Whether a value that spells a number is read as another number."""
        return any(number_of(value) not in (None, code) for value, code in self.codes.items())

    @property
    def type_(self) -> str:
        """Its type for a message, the same for attributes that are read alike."""
        return f"one of {{{', '.join(sorted(self.values))}}}" if self.values else "a number"


def number_of(value: str) -> float | None:
    """The number that a nominal value spells; None for a word, and `nan` and `inf` are words."""
    number = plain_float(value) if is_number(value) else math.nan
    return number if math.isfinite(number) else None


@dataclass(frozen=True)
class ArffHeader:
    """The part of the file before @data."""

    relation: str
    attributes: list[Attribute]

    @property
    def meka_labels(self) -> list[str] | None:
        """The labels, if the relation's name counts them as MEKA does: -C 6, or -C -6 at the end."""
        match = re.search(r"(?:^|[\s:])-C\s+(-?\d{1,6})\b", self.relation)
        count = int(match[1]) if match else 0
        if not count or abs(count) >= len(self.attributes):
            return None
        chosen = self.attributes[:count] if count > 0 else self.attributes[count:]
        return [attribute.name for attribute in chosen]


def cells_of(text: str) -> list[str]:
    """Split at commas that are not inside quotes."""
    if "'" not in text and '"' not in text:
        return text.split(",")
    cells, at = [], 0
    while at <= len(text):
        match = CELL.match(text, at)
        assert match is not None  # it matches an empty cell too
        cells.append(match[0])
        at = match.end() + 1
    return cells


def unquoted(text: str) -> str:
    """Take the quotes off, and the backslashes inside them."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text


def read_header(file: Path) -> tuple[ArffHeader, Iterator[tuple[int, str]]]:
    """Return the header, and the numbered lines of the data that follow."""
    check_plain(file)
    relation, attributes = "", list[Attribute]()
    lines = ((n, line.strip()) for n, line in numbered_lines(file))
    lines = ((n, line) for n, line in lines if line and not line.startswith("%"))
    for number, line in lines:
        start = line.lower()
        if start.startswith("@data"):
            if rest := line[len("@data") :].partition("%")[0].strip():
                raise UserError(
                    f"{file} line {number}: {rest[:40]!r} after @data, expected a new line"
                )
            return ArffHeader(relation, attributes), lines
        if start.startswith("@relation"):
            relation = unquoted(line[len("@relation") :])
        if start.startswith("@attribute"):
            match = ATTRIBUTE.match(line)
            domain = match[2].strip() if match else ""
            if match and domain.startswith("{") and "}" in domain:
                values = tuple(map(unquoted, cells_of(domain[1 : domain.rindex("}")])))
                attributes.append(Attribute.nominal(unquoted(match[1]), values))
            elif match and domain.lower().split()[0] in NUMERIC:
                attributes.append(Attribute(unquoted(match[1]), (), {}))
            else:
                raise UserError(
                    f"{file} line {number}: expected @attribute NAME numeric or {{a,b}}, found "
                    f"{line[:60]!r}"
                )
    raise UserError(f"{file}: no @data line in it")


def read_values(
    line: str,
    attributes: list[Attribute],
    empty: npt.NDArray[np.float64],
    nullable: Collection[int],
) -> npt.NDArray[np.float64] | str:
    """Return the values of a dense or a sparse row, or a text that says why it is bad.

    nullable: the columns in which `?` is allowed; it is read as NaN.
    """
    sparse = line.startswith("{")
    if sparse and not line.endswith("}"):
        return "the sparse row has no closing }"
    cells = cells_of(line[1:-1] if sparse else line)
    if not sparse and len(cells) != len(attributes):
        return f"{len(cells)} values, expected {len(attributes)}"
    values = empty.copy()
    named = set[int]()  # by a sparse row
    for k, cell in enumerate(cells):
        text = cell.strip()
        if sparse:
            if not text:
                continue
            index, *rest = text.split(maxsplit=1)
            text = rest[0] if rest else ""
            if not index.isdecimal() or len(index) > 9 or int(index) >= len(attributes):
                return f"{index[:20]!r} is not the number of an attribute"
            k = int(index)
            if k in named:
                return f"attribute {attributes[k].name!r} occurs twice"
            named.add(k)
        if text == MISSING and k in nullable:
            values[k] = np.nan
            continue
        try:
            values[k] = attributes[k].number(text)
        except ValueError:
            value = "a missing value" if text == MISSING else f"{text[:20]!r}"
            return f"attribute {attributes[k].name!r}: {value} is not a value of it"
    return values
