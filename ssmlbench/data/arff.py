"""Feature vectors in Mulan's layout: NAME-train.arff, NAME-test.arff, and NAME.xml with the labels.

Read here, a line at a time: SciPy's reader refuses Mulan's sparse files, and those that take them
hold the whole file in memory.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar
from xml.etree import ElementTree

import numpy as np

from ssmlbench.core.errors import UserError
from ssmlbench.data.adapter import SPLITS, BadRow, DatasetAdapter, Row, numbered_lines
from ssmlbench.data.user_data import files_digest, safe_name

ATTRIBUTE = re.compile(r"""@attribute\s+('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\S+)\s+(.+)""", re.I)
NUMERIC = ("numeric", "real", "integer")


@dataclass(frozen=True)
class Attribute:
    name: str
    values: tuple[str, ...]  # of a nominal attribute; empty for a number

    def number(self, text: str) -> float:
        """A number as it is; a nominal value as the number it spells, or as its position."""
        if not self.values:
            return float(text)
        text = unquoted(text)
        position = self.values.index(text)
        try:
            return float(text)
        except ValueError:
            return float(position)

    @property
    def absent(self) -> float:
        """What a sparse row means by not naming the attribute."""
        return self.number(self.values[0]) if self.values else 0.0


class ArffData(DatasetAdapter):
    """A Mulan data set beside its XML. Made by `own.data_class`, not by name."""

    layout = "NAME-train.arff\nNAME-test.arff\nNAME.xml     the labels: <label name=…> each"
    kind = "vector"
    backbone = "vector"
    home: ClassVar[Path]  # path/NAME, without -train.arff

    @classmethod
    def at(cls, file: Path) -> type[DatasetAdapter]:
        base = file.with_name(re.sub(r"[-_](train|test)$", "", file.stem))
        for needed in (*(arff_file(base, split) for split in SPLITS), Path(f"{base}.xml")):
            if not needed.is_file():
                raise UserError(
                    f"--dataset {file}: {needed.name} is not beside it; Mulan's layout is "
                    f"{base.name}-train.arff, {base.name}-test.arff and {base.name}.xml"
                )
        return type("OwnArff", (cls,), {"name": safe_name(base), "home": base})

    def __init__(self, source: Path | None = None, data_dir: Path | None = None):
        super().__init__(source or self.home.parent, data_dir)

    def source_key(self) -> str:
        return files_digest([*(arff_file(self.home, s) for s in SPLITS), Path(f"{self.home}.xml")])

    @cached_property
    def _labels(self) -> list[str]:
        file = Path(f"{self.home}.xml")
        try:
            tree = ElementTree.parse(file)
        except ElementTree.ParseError as error:
            raise UserError(f"{file}: not XML ({error})") from None
        return [e.get("name", "") for e in tree.iter() if e.tag.rpartition("}")[2] == "label"]

    def label_names(self) -> list[str]:
        return self._labels

    def rows(self, split: str) -> Iterator[Row | BadRow]:
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
    hyphen, low = (base.with_name(f"{base.name}{c}{split}.arff") for c in "-_")
    return low if low.is_file() and not hyphen.is_file() else hyphen


def unquoted(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text


def read_header(file: Path) -> tuple[list[Attribute], Iterator[tuple[int, str]]]:
    """The attributes, and the numbered lines of the data that follow."""
    attributes: list[Attribute] = []
    lines = ((n, line.strip()) for n, line in numbered_lines(file))
    lines = ((n, line) for n, line in lines if line and not line.startswith("%"))
    for number, line in lines:
        if line.lower().startswith("@data"):
            return attributes, lines
        if line.lower().startswith("@attribute"):
            match = ATTRIBUTE.match(line)
            domain = match[2].strip() if match else ""
            if match and domain.startswith("{"):
                values = next(
                    csv.reader([domain.strip("{} ")], quotechar="'", skipinitialspace=True)
                )
                attributes.append(Attribute(unquoted(match[1]), tuple(v.strip() for v in values)))
            elif match and domain.lower().split()[0] in NUMERIC:
                attributes.append(Attribute(unquoted(match[1]), ()))
            else:
                raise UserError(
                    f"{file} line {number}: expected @attribute NAME numeric or {{a,b}}, found "
                    f"{line[:60]!r}"
                )
    raise UserError(f"{file}: no @data line in it")


def read_values(line: str, attributes: list[Attribute], empty: np.ndarray) -> np.ndarray | str:
    """The values of a dense or a sparse row, or what is wrong with it."""
    sparse = line.startswith("{")
    if sparse and not line.endswith("}"):
        return "the sparse row has no closing }"
    cells = (line[1:-1] if sparse else line).split(",")
    if not sparse and len(cells) != len(attributes):
        return f"{len(cells)} values, expected {len(attributes)}"
    values = empty.copy()
    for k, cell in enumerate(cells):
        text = cell.strip()
        if sparse:
            if not text:
                continue
            index, _, text = text.partition(" ")
            if not index.isdecimal() or int(index) >= len(attributes):
                return f"{index!r} is not the number of an attribute"
            k = int(index)
        try:
            values[k] = attributes[k].number(text.strip())
        except ValueError:
            what = "a missing value" if text.strip() == "?" else f"{text.strip()[:20]!r}"
            return f"attribute {attributes[k].name!r}: {what} is not a value of it"
    return values
