"""Feature vectors in ARFF files: Mulan's layout, with the labels in an XML file, or MEKA's.

The rows are in NAME-train.arff and NAME-test.arff, or all in NAME.arff.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import ClassVar
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from ssmlbench.core.data_options import DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.data.adapter import BadRow, InputColumns, Row
from ssmlbench.data.arff_syntax import (
    MISSING,
    ArffHeader,
    Attribute,
    number_of,
    read_header,
    read_values,
)
from ssmlbench.data.label_cells import never_zero
from ssmlbench.data.plain_numbers import is_number
from ssmlbench.data.records import ColumnTypes, Table, TableRecords
from ssmlbench.data.table_source import check_unread
from ssmlbench.data.text_files import check_plain
from ssmlbench.data.user_files import PARTS, UserFiles

LAYOUT = """
NAME-train.arff
NAME-test.arff                  or all rows in NAME.arff, without test rows or with --holdout
NAME-unlabelled.arff            optional: training rows whose labels are not known
NAME.xml                        the labels: <label name=…> each (Mulan);
                                or `-C 6` in the @relation: the first 6 attributes (MEKA)
"""
ANSWERS = {"no": 0.0, "yes": 1.0, "false": 0.0, "true": 1.0, MISSING: math.nan}
"""Words, in lower case, that say whether a label applies."""
Key = tuple[str, int]
"""The name of an attribute, and how often the name came before."""


class ArffFiles(UserFiles):
    """A data set of ARFF files: Mulan's, or MEKA's."""

    layout = LAYOUT
    format_name = "ARFF files"
    reads = frozenset({"empty_labels"})
    kind = "vector"
    backbone = "vector"
    base: ClassVar[Path]  # FOLDER/NAME

    @classmethod
    def at(cls, path: Path, options: DataOptions) -> type[ArffFiles]:
        """Build the data set class of a folder, of NAME.arff, or of a file of its parts."""
        base = _only_base(path) if path.is_dir() else _base(path)
        if not arff_files(base):
            raise UserError(
                f"data set {path}: there is no {base.name}.arff or {base.name}-train.arff"
            )
        if "train" not in arff_files(base):
            raise UserError(
                f"data set {path}: {base.name}-train.arff is not in the same folder; Mulan's layout "
                f"is {base.name}-train.arff, {base.name}-test.arff and {base.name}.xml"
            )
        cls._label_names_at(base)
        return cls.named(base, options, base=base)  # named after NAME, without -train.arff

    @classmethod
    def raw_folder(cls) -> Path:
        """Return the folder of the files."""
        return cls.base.parent

    def source_files(self) -> list[Path]:
        """Return the ARFF files and the XML."""
        xml = xml_file(self.base)
        return [*arff_files(self.base).values(), *([xml] if xml.exists() else [])]

    def parts(self) -> tuple[str, ...]:
        """Return the parts that have a file."""
        return tuple(arff_files(self.base))

    @classmethod
    def _label_names_at(cls, base: Path) -> list[str]:
        """Return the labels of the XML, or else those that MEKA's @relation counts."""
        file = xml_file(base)
        if not file.exists():
            train = arff_files(base)["train"]
            if (counted := read_header(train)[0].meka_labels) is None:
                raise UserError(
                    f"{train}: which attributes are labels? {file.name} is not in the same folder "
                    "(Mulan's layout), and its @relation has no `-C NUMBER` (MEKA's)"
                )
            _check_counted(base, counted, train.name)
            return counted
        check_plain(file)
        try:
            tree = ElementTree.parse(file)
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            raise UserError(f"{file}: not XML ({error})") from None
        names = [
            e.get("name", "") for e in tree.iter() if e.tag.rpartition("}")[2].lower() == "label"
        ]
        _check_counted(base, names, file.name)
        return names

    @cached_property
    def _labels(self) -> list[str]:
        return self._label_names_at(self.base)

    def label_names(self) -> list[str]:
        """Return the labels in the order of the XML or of the attributes."""
        return self._labels

    @cached_property
    def _first(self) -> ArffHeader:
        """The header of the training file, which all other files are matched with."""
        return read_header(arff_files(self.base)["train"])[0]

    def columns(self) -> InputColumns:
        """Return the attributes of the training file that are not labels."""
        keys = keyed(self._first.attributes)
        names = tuple(column_name(key) for key in keys)
        flagged = {column_name((name, 0)) for name in self._labels}
        coded = {column_name(k) for k, at in keys.items() if self._first.attributes[at].recoded}
        inputs = tuple(name for name in names if name not in flagged)
        return InputColumns(inputs, all=names, coded=tuple(n for n in inputs if n in coded))

    def part_rows(self, part: str) -> Iterator[Row | BadRow]:
        """Yield the rows as vectors of all attributes that are not labels, as train orders them."""
        file = arff_files(self.base)[part]
        header, lines = read_header(file)
        column, attributes = matched(file, header.attributes, self._first.attributes)
        label_columns = self._label_columns(file, column)
        flagged = set(label_columns.tolist())
        features = np.array([k for k in column.values() if k not in flagged], dtype=int)
        for k in flagged:
            attributes[k] = label_attribute(file, attributes[k])
        empty = np.array([attribute.absent for attribute in attributes])
        asked, zero, minus_one = self.options.empty_labels, False, False
        for number, line in lines:
            where = self.where(file, number)
            values = read_values(line, attributes, empty, flagged)
            if isinstance(values, str):
                yield BadRow(where, values)
                continue
            flags = values[label_columns]
            if asked == "none":
                flags[flags == -1] = 0
            zero = zero or bool((flags == 0).any())
            minus_one = minus_one or bool((flags == -1).any())
            unknown = np.isnan(flags) | (flags == -1)
            if not (unknown | (flags == 0) | (flags == 1)).all():
                yield BadRow(where, "a label is neither 0 nor 1", "unknown label")
                continue
            yield Row(
                values[features].astype(np.float32),
                tuple(np.flatnonzero(flags == 1)),
                where=where,
                unknown=tuple(np.flatnonzero(unknown)),
            )
        if part == "train" and minus_one and not zero and not asked:
            raise never_zero(self.name)

    def _label_columns(self, file: Path, column: dict[Key, int]) -> NDArray[np.intp]:
        """The columns of the labels in a file; every label must have exactly one."""
        for name in self._labels:
            if (name, 0) not in column:
                raise UserError(f"{file}: no attribute {name!r}, a label in {self.base.name}.xml")
            if (name, 1) in column:
                raise UserError(f"{file}: two attributes are called {name!r}, as a label is")
        return np.array([column[name, 0] for name in self._labels], dtype=int)


def _check_counted(base: Path, names: Sequence[str], there: str) -> None:
    """Raise a UserError if the @relation of a file counts other labels than `there` says."""
    for part, file in arff_files(base).items():
        counted = read_header(file)[0].meka_labels if part != "unlabelled" else None
        if counted is not None and {*counted} != {*names}:
            raise UserError(
                f"{file}: its @relation counts the labels {', '.join(counted[:3])}…, and {there} names "
                f"{', '.join(names[:3])}…; give both the same, or take one away"
            )


def matched(
    file: Path, here: list[Attribute], first: list[Attribute]
) -> tuple[dict[Key, int], list[Attribute]]:
    """Match the attributes of a file by name with those of the training file.

    Return the column of each attribute, in the order of the training file, and the attributes of the
    file with the codes of the training file.
    """
    ours, theirs = keyed(here), keyed(first)
    for key in theirs:
        if key not in ours:
            hint = did_you_mean(key[0], {a.name for a in here})
            raise UserError(f"{file}: no attribute {key[0]!r}, which the training file has.{hint}")
    for key in ours:
        if key not in theirs:
            raise UserError(f"{file}: attribute {key[0]!r} is not in the training file")
    coded = list(here)
    for key, k in ours.items():
        mine, other = here[k], first[theirs[key]]
        if mine.type_ != other.type_:
            raise UserError(
                f"{file}: attribute {key[0]!r} is {mine.type_}, in the training file it is "
                f"{other.type_}"
            )
        coded[k] = mine.coded_as(other)
    return {key: ours[key] for key in theirs}, coded


def keyed(attributes: list[Attribute]) -> dict[Key, int]:
    """The column of each attribute by its name; a name that comes again is another attribute."""
    columns: dict[Key, int] = {}
    counts: dict[str, int] = {}
    for k, attribute in enumerate(attributes):
        again = counts[attribute.name] = counts.get(attribute.name, -1) + 1
        columns[attribute.name, again] = k
    return columns


def column_name(key: Key) -> str:
    """An attribute's name; with a number, where the name came before."""
    name, again = key
    return f"{name} ({again + 1})" if again else name


class ArffTable(Table):
    """An ARFF file as a table of numbers, for inputs without labels."""

    strict = True

    def __init__(self, file: Path, needed: Sequence[str]):
        """needed: the columns that must have a value in every row."""
        super().__init__(file)
        self.needed = needed

    @cached_property
    def columns(self) -> ColumnTypes:
        """The attributes."""
        attributes = read_header(self.file)[0].attributes
        for attribute in attributes:
            wordy = [value for value in attribute.values if not is_number(value)]
            if wordy and attribute.name in self.needed:
                raise UserError(
                    f"{self.file}: attribute {attribute.name!r} has words as values ({wordy[0]!r}); "
                    "rows to predict must have numbers"
                )
        return {column_name(key): "number" for key in keyed(attributes)}

    def records(self, columns: tuple[str, ...] | None = None) -> TableRecords:
        """Yield the rows."""
        header, lines = read_header(self.file)
        names = list(self.columns)
        nullable = {k for k, name in enumerate(names) if name not in self.needed}
        empty = np.array([attribute.absent for attribute in header.attributes])
        for number, line in lines:
            values = read_values(line, header.attributes, empty, nullable)
            if isinstance(values, str):
                yield number, BadRow("", values)
            else:
                yield number, dict(zip(names, values.tolist(), strict=True))


def label_attribute(file: Path, attribute: Attribute) -> Attribute:
    """The attribute of a label with 0 and 1 as codes, whatever the order of its values.

    Raise a UserError for words other than those of ANSWERS, and for -1 and 1: elsewhere, -1 is unknown.
    """
    codes = {v: ANSWERS.get(v.lower(), number_of(v)) for v in attribute.values}
    known = {value: code for value, code in codes.items() if code is not None}
    if len(known) < len(codes) or (-1 in known.values() and 0 not in known.values()):
        raise UserError(
            f"{file}: label {attribute.name!r} is one of {{{', '.join(attribute.values)}}}; write 0 for "
            "a negative label, 1 for a positive and ? for an unknown one"
        )
    return replace(attribute, codes=known)


def arff_files(base: Path) -> dict[str, Path]:
    """The file of each part: NAME-train.arff, NAME_train.arff, or for train NAME.arff."""
    files = {}
    folder = base.parent
    there = {file.name.lower(): file for file in folder.iterdir()} if folder.is_dir() else {}
    for part in PARTS:
        names = [f"{base.name}{mark}{part}.arff" for mark in "-_"]
        if part == "train":
            names.append(f"{base.name}.arff")
        exact = (f for f in map(base.with_name, names) if f.exists())
        other = (there[name.lower()] for name in names if name.lower() in there)
        found = list(dict.fromkeys(chain(exact, other)))
        parted = [file for file in found if file.stem.lower() != base.name.lower()]
        if len(parted) > 1:
            raise UserError(
                f"data set {folder}: {parted[0].name} or {parted[1].name}? Move one away"
            )
        if found:
            files[part] = found[0]
        elif folder.is_dir():
            called = re.compile(f"{re.escape(base.name)}[-_]{part}", re.IGNORECASE)
            check_unread(folder, called, [])
    return files


def xml_file(base: Path) -> Path:
    """NAME.xml, in upper or lower case."""
    exact = base.with_name(f"{base.name}.xml")
    if exact.exists() or not base.parent.is_dir():
        return exact
    there = sorted(base.parent.iterdir())
    return next((file for file in there if file.name.lower() == exact.name.lower()), exact)


def _base(file: Path) -> Path:
    return file.with_name(re.sub(rf"(?i)[-_]({'|'.join(PARTS)})$", "", file.stem))


def _only_base(folder: Path) -> Path:
    """FOLDER/NAME of the only data set in a folder."""
    bases = sorted({_base(file) for file in folder.glob("*.arff")})
    whole = {base for base in bases if "train" in arff_files(base)}
    trained = [b for b in bases if b.with_name(f"{b.name}-train.arff").exists()]
    chosen = trained if len(trained) == 1 else sorted(whole)
    if len(chosen) != 1:
        raise UserError(
            f"data set {folder}: which of its ARFF files? Type one of "
            f"{', '.join(f'{folder.name}/{base.name}.arff' for base in bases[:5])}"
        )
    return chosen[0]
