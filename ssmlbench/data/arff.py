"""Feature vectors in Mulan's layout: NAME-train.arff, NAME-test.arff, and NAME.xml with the labels.

Read here, a line at a time, so that an error names its line, a bad row can be left out, and there
is no dependency: liac-arff streams such files too but stops at the first bad row, and SciPy's reader
refuses sparse files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from ssmlbench.core.errors import UserError
from ssmlbench.data.adapter import SPLITS, BadRow, Row, numbered_lines
from ssmlbench.data.user_files import UserFiles

QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
ATTRIBUTE = re.compile(rf"@attribute\s+({QUOTED}|\S+)\s+(.+)", re.IGNORECASE)
CELL = re.compile(rf"\s*(?:\d+\s+)?(?:{QUOTED})\s*(?=,|$)|[^,]*")
"""A quoted value, after its index in a sparse row, or anything up to the next comma."""
NUMERIC = ("numeric", "real", "integer")


@dataclass(frozen=True)
class Attribute:
    """A column of the file."""

    name: str
    values: tuple[str, ...]  # of a nominal attribute; empty for a number

    def number(self, text: str) -> float:
        """Read a number as it is, a nominal value as the number it spells or as its position."""
        text = unquoted(text)
        if not self.values:
            return float(text)
        position = self.values.index(text)
        try:
            return float(text)
        except ValueError:
            return float(position)

    @property
    def absent(self) -> float:
        """The value in a sparse row that does not name the attribute."""
        return self.number(self.values[0]) if self.values else 0.0


class ArffFiles(UserFiles):
    """A Mulan data set: two ARFF files and the XML with the names of its labels."""

    layout = "NAME-train.arff\nNAME-test.arff\nNAME.xml     the labels: <label name=…> each"
    kind = "vector"
    backbone = "vector"

    @classmethod
    def at(cls, path: Path) -> type[ArffFiles]:
        """Build the data set class of NAME.arff, NAME-train.arff or NAME-test.arff."""
        base = path.with_name(re.sub(r"[-_](train|test)$", "", path.stem))
        for needed in (*(arff_file(base, split) for split in SPLITS), Path(f"{base}.xml")):
            if not needed.is_file():
                raise UserError(
                    f"data set {path}: {needed.name} is not in the same folder; Mulan's layout is "
                    f"{base.name}-train.arff, {base.name}-test.arff and {base.name}.xml"
                )
        return cls.named(base)  # path/NAME, without -train.arff

    @classmethod
    def raw_folder(cls) -> Path:
        """Return the folder of the three files."""
        return cls.home.parent

    def source_files(self) -> list[Path]:
        """Return the three files."""
        return [*(arff_file(self.home, split) for split in SPLITS), Path(f"{self.home}.xml")]

    @cached_property
    def _labels(self) -> list[str]:
        file = Path(f"{self.home}.xml")
        try:
            tree = ElementTree.parse(file)
        except ElementTree.ParseError as error:
            raise UserError(f"{file}: not XML ({error})") from None
        return [e.get("name", "") for e in tree.iter() if e.tag.rpartition("}")[2] == "label"]

    def label_names(self) -> list[str]:
        """Return the labels of the XML, in its order."""
        return self._labels

    def rows(self, split: str) -> Iterator[Row | BadRow]:
        """Yield the rows of a split as vectors of all attributes that are no labels."""
        file = arff_file(self.home, split)
        attributes, lines = read_header(file)
        column = {attribute.name: k for k, attribute in enumerate(attributes)}
        absent = [name for name in self._labels if name not in column]
        if absent:
            raise UserError(f"{file}: no attribute {absent[0]!r}, a label in {self.home.name}.xml")
        label_columns = np.array([column[name] for name in self._labels])
        features = np.setdiff1d(np.arange(len(attributes)), label_columns)
        empty = np.array([attribute.absent for attribute in attributes])
        for number, line in lines:
            where = self.where(file, number)
            values = read_values(line, attributes, empty)
            if isinstance(values, str):
                yield BadRow(where, values)
                continue
            flags = values[label_columns]
            if not np.isin(flags, (0.0, 1.0)).all():
                yield BadRow(where, "a label is neither 0 nor 1", "unknown label")
                continue
            yield Row(values[features].astype(np.float32), tuple(np.flatnonzero(flags)), "", where)


def arff_file(base: Path, split: str) -> Path:
    """Return NAME-train.arff, or NAME_train.arff where only that exists."""
    hyphen, low = (base.with_name(f"{base.name}{c}{split}.arff") for c in "-_")
    return low if low.is_file() and not hyphen.is_file() else hyphen


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


def read_header(file: Path) -> tuple[list[Attribute], Iterator[tuple[int, str]]]:
    """Return the attributes, and the numbered lines of the data that follow."""
    attributes: list[Attribute] = []
    lines = ((n, line.strip()) for n, line in numbered_lines(file))
    lines = ((n, line) for n, line in lines if line and not line.startswith("%"))
    for number, line in lines:
        if line.lower().startswith("@data"):
            return attributes, lines
        if line.lower().startswith("@attribute"):
            match = ATTRIBUTE.match(line)
            domain = match[2].strip() if match else ""
            if match and domain.startswith("{") and "}" in domain:
                values = cells_of(domain[1 : domain.rindex("}")])
                attributes.append(Attribute(unquoted(match[1]), tuple(map(unquoted, values))))
            elif match and domain.lower().split()[0] in NUMERIC:
                attributes.append(Attribute(unquoted(match[1]), ()))
            else:
                raise UserError(
                    f"{file} line {number}: expected @attribute NAME numeric or {{a,b}}, found "
                    f"{line[:60]!r}"
                )
    raise UserError(f"{file}: no @data line in it")


def read_values(
    line: str, attributes: list[Attribute], empty: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64] | str:
    """Return the values of a dense or a sparse row, or a text that says why it is bad."""
    sparse = line.startswith("{")
    if sparse and not line.endswith("}"):
        return "the sparse row has no closing }"
    cells = cells_of(line[1:-1] if sparse else line)
    if not sparse and len(cells) != len(attributes):
        return f"{len(cells)} values, expected {len(attributes)}"
    values = empty.copy()
    for k, cell in enumerate(cells):
        text = cell.strip()
        if sparse:
            if not text:
                continue
            index, *rest = text.split(maxsplit=1)
            text = rest[0] if rest else ""
            if not index.isdecimal() or int(index) >= len(attributes):
                return f"{index!r} is not the number of an attribute"
            k = int(index)
        try:
            values[k] = attributes[k].number(text)
        except ValueError:
            what = "a missing value" if text == "?" else f"{text[:20]!r}"
            return f"attribute {attributes[k].name!r}: {what} is not a value of it"
    return values
