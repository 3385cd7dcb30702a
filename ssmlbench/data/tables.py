"""A user's tables as a data set, without a line of Python: a folder of files, or one file.

A row has a text, an image or a vector, and its labels: a list of names, a list of ids, or 0/1 columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from ssmlbench.core.counts import counted, first_of
from ssmlbench.core.data_options import DataOptions
from ssmlbench.core.errors import ListedMistakes, UserError
from ssmlbench.core.whole_numbers import in_order
from ssmlbench.data.adapter import BadRow, InputColumns, Row
from ssmlbench.data.columns import (
    SPLIT_COLUMNS,
    Roles,
    check_columns,
    check_named,
    choose_roles,
    first_values,
    tells_split,
    unused_numbers,
)
from ssmlbench.data.label_cells import counts_from, joined_by, multi_hot_width, never_zero
from ssmlbench.data.late_columns import check_late_flags
from ssmlbench.data.listed_names import LabelForms, check_counted, same_number
from ssmlbench.data.media import MediaFinder, file_row, media_files
from ssmlbench.data.records import TableRecord
from ssmlbench.data.table_rows import RowReader, listed_labels
from ssmlbench.data.table_source import FileSource, TableSource, part_folders
from ssmlbench.data.unread import unread_hint
from ssmlbench.data.user_files import BACKBONES, PART_OF, PARTS, SPLIT_NAMES, UserFiles

LAYOUT = """
train.csv, .tsv, .jsonl or .parquet   (or several: train-0.parquet, train-1.parquet; or labels.csv,
                                if it is the only table: images that it does not name are unlabelled)
test.csv, …                     optional: without it, --holdout or --regime given
unlabelled.csv, …               optional: training rows whose labels are not known; or a folder
                                unlabelled/ of images or .txt files
labels.txt                      optional: one label per line; fixes the labels and their order
with the columns
  text                          or `image`: a path, seen from this folder; or `vector`
  labels                        a list of names or of ids (in CSV a JSON list, or a;b;c);
                                or, instead, one column of 0 and 1 per label
  id                            optional
  back_translation              optional, in train: the text, translated and back (a strong view)
"""
SHOWN_NAMES = 5


class TableFiles(UserFiles):
    """The tables of a user's folder, or one table."""

    layout = LAYOUT
    format_name = "files on this machine"
    reads = DataOptions.names() - {"hub_config"}
    source: ClassVar[TableSource]
    roles: ClassVar[Roles]

    @classmethod
    def at(cls, path: Path, options: DataOptions) -> type[TableFiles]:
        """Build the data set class of a folder or file; a UserError if it has not the layout."""
        source = FileSource(path)
        if not source.tables("train"):
            hints = (unread_hint(f) for f in sorted(path.iterdir()) if f.name.startswith("train"))
            raise ListedMistakes(
                f"data set {path}: no train file in it{next(filter(None, hints), '')}; it should look like",
                *(f"    {line}" for line in LAYOUT.strip("\n").splitlines()),
            )
        return cls.of(source, path, options)

    @classmethod
    def of(
        cls, source: TableSource, home: Path, options: DataOptions, **fields: Any
    ) -> type[TableFiles]:
        """Build the data set class of tables."""
        roles = choose_roles(source.first, options, source.listed)
        if roles.flags and not options.label_column and not source.listed:
            labelled = [table for part in ("train", "test") for table in source.tables(part)]
            check_late_flags(source.first, labelled[1:], roles)
        return cls.named(
            home,
            options,
            source=source,
            roles=roles,
            kind=roles.kind,
            backbone=BACKBONES[roles.kind],
            back_translated=bool(roles.translation),
            **fields,
        )

    def source_files(self) -> list[Path]:
        """Return the files of all parts."""
        return [*self.source.files(), *self._loose]

    def named_facts(self) -> str:
        """Return a digest of the images or texts that the tables name."""
        return self._named_digest

    @cached_property
    def _named_digest(self) -> str:
        if not self._names_files:
            return ""
        finder, digest = MediaFinder(self.raw_folder(), allow_outside=True), hashlib.sha256()
        for value, near in self.named_files():
            digest.update(f"{value} {finder.facts(value, near)}\n".encode(errors="surrogatepass"))
        return digest.hexdigest()[:16]

    def parts(self) -> tuple[str, ...]:
        """Return the parts that have a table, a row in the split column, or files of their own."""
        loose = ("unlabelled",) if self._loose else ()
        return tuple(dict.fromkeys((*self._table_parts, *loose)))

    @cached_property
    def _loose(self) -> list[Path]:
        """The files of rows without labels: in the folder `unlabelled`, or named by no table.

        The latter, if the table is not called train: then it says which rows are labelled.
        """
        home, kind = self.home, self.roles.kind
        if kind == "vector" or not home.is_dir() or not isinstance(self.source, FileSource):
            return []
        of_part = part_folders(home, "unlabelled")
        found = [f for folder in of_part for f in media_files(folder, kind)]
        if self.source.only is None or (kind == "text" and not self.roles.in_files):
            tabled = not self.source.single and self.source.tables("unlabelled")
            return [] if tabled else found
        others = {sub for part in ("test", "validation") for sub in part_folders(home, part)}
        named = self._named_files()
        return [
            f
            for f in media_files(home, kind)
            if f.resolve() not in named and not others & {*f.parents}
        ]

    def _named_files(self) -> set[Path]:
        """The files that the tables name."""
        finder = MediaFinder(self.home, allow_outside=True)
        found = (finder.find(value, near) for value, near in self.named_files())
        return {file.resolve() for file in found if isinstance(file, Path)}

    @property
    def _names_files(self) -> bool:
        """Whether the inputs are names of files in the data folder."""
        local = isinstance(self.source, FileSource)
        return local and (self.roles.kind == "image" or self.roles.in_files)

    def named_files(self) -> Iterator[tuple[str, Path]]:
        """Yield the names of files in the tables, and the folders of the tables."""
        if not self._names_files:
            return
        column = self.roles.inputs[0]
        tables = {table.file: table for part in SPLIT_NAMES for table in self.source.tables(part)}
        for table in tables.values():
            for _, record in table.records((column,)):
                value = record.get(column) if isinstance(record, dict) else None
                if isinstance(value, str):
                    yield value, table.folder

    @cached_property
    def _table_parts(self) -> tuple[str, ...]:
        if not self.source.single:
            return tuple(part for part in PARTS if self.source.tables(part))
        if not self.roles.split:
            self._check_other_columns()
            self._check_late_split()
            return ("train",)
        records = (
            r for t in self.source.tables("train") for _, r in t.records((self.roles.split,))
        )
        found = {self._part_of(record) for record in records if isinstance(record, dict)}
        if "train" not in found:
            raise UserError(f"{self.home}: no row has `train` in its column {self.roles.split!r}")
        return tuple(part for part in PARTS if part in found)

    def _check_other_columns(self) -> None:
        """Raise a UserError if a column that is not used says which rows are for training or tests."""
        roles, table = self.roles, self.source.first
        used = {*roles.inputs, *roles.flags, roles.labels, roles.id, roles.translation}
        for column, value in first_values(
            table, [c for c in table.columns if c not in used]
        ).items():
            if str(value).strip().lower() in PART_OF or tells_split(column):
                raise UserError(
                    f"{table.file}: column {column!r} says {str(value)!r}; type --split-column {column!r} "
                    "if it tells training rows from test rows, or rename it if it does not"
                )

    def _check_late_split(self) -> None:
        """Raise a UserError if a later row has a split and the first one has none."""
        for table in self.source.tables("train"):
            for number, record in table.records(SPLIT_COLUMNS) if not table.strict else ():
                if isinstance(record, dict) and (late := record.keys() & {*SPLIT_COLUMNS}):
                    raise UserError(
                        f"{table.file}: {table.where(number)} has the column {min(late)!r}, and the first "
                        "row has not; write it in every row"
                    )

    def _part_of(self, record: TableRecord) -> str | None:
        """Return the part that the split column names; None if it names none."""
        return PART_OF.get(str(record.get(self.roles.split)).strip().lower())

    def columns(self) -> InputColumns:
        """Return the columns of the first training table, and what the inputs are among them."""
        return InputColumns(self.roles.inputs, self.roles.id, tuple(self.source.first.columns))

    def card_notes(self) -> list[str]:
        """Name what is not used: validation tables, and columns that could have been labels."""
        tables = [] if self.source.single else self.source.tables("validation")
        notes = [
            f"{table.name} is not used: validation rows come from train" for table in tables[:1]
        ]
        if self.source.single and self.roles.split and (count := self._validation_rows()):
            notes.append(
                f"not used: {counted(count, 'validation row')} of column {self.roles.split}; validation "
                "rows come from train"
            )
        if unread := self.source.unread():
            notes.append(f"not read: {first_of(unread, SHOWN_NAMES)}")
        if self.roles.flags and not self.options.label_column and not self.source.listed:
            numbers = unused_numbers(self.source.first, self.roles)
            if numbers:
                notes.append(
                    f"not used, as they hold other numbers than 0 and 1: {', '.join(numbers)}; "
                    "--label-column names the columns of labels"
                )
        if self._loose:
            notes.append(
                f"{len(self._loose):,} {self.roles.kind}s are unlabelled training rows: they are in "
                "unlabelled/, or the table of labels does not name them"
            )
        return notes

    def _validation_rows(self) -> int:
        """The number of rows that the split column calls validation."""
        records = (
            r for t in self.source.tables("train") for _, r in t.records((self.roles.split,))
        )
        return sum(isinstance(r, dict) and self._part_of(r) == "validation" for r in records)

    def label_names(self) -> list[str]:
        """Return the 0/1 columns, the lines of labels.txt, or every label of the rows, sorted."""
        return self._names

    @cached_property
    def _names(self) -> list[str]:
        if self.roles.flags:
            return list(self.roles.flags)
        if self.roles.labels and (width := self._multi_hot):
            names = self._declared or [str(k) for k in range(width)]
            if len(names) != width:
                raise UserError(f"data set {self.name}: {len(names)} labels, but lists of {width}")
            check_counted(self.source.listed, f"data set {self.name}")
            return names
        if self.source.listed:
            return self.source.listed
        if not self.roles.labels:
            raise UserError(
                f"data set {self.name}: no labels found in {self.source.first.name}; it needs "
                "a `labels` column with a list, or a column of 0 and 1 per label"
            )
        if self._declared:
            return self._declared
        found, bad = self._found_labels()
        if not found:
            why = f" ({bad.where}: {bad.reason})" if bad else ""
            raise UserError(
                f"data set {self.name}: column {self.roles.labels!r} holds no label{why}"
            )
        if same := same_number(found):
            raise UserError(
                f"data set {self.name}: labels {same[0]!r} and {same[1]!r} are one number; write ids in "
                "one form, or list the names in labels.txt"
            )
        return in_order(found)

    def _found_labels(self) -> tuple[set[str], BadRow | None]:
        """Every label that a row has, and the first row whose labels cannot be read.

        Names in one place and ids in another are an error.
        """
        found: set[str] = set()
        bad: BadRow | None = None
        forms: dict[type, str] = {}
        marks: dict[str, str] = {}  # what stands between labels, and where it was seen first
        labels = self.roles.labels
        for part in self.parts():
            if part == "unlabelled":
                continue
            for record, where, _ in self._records(part, (labels, self.roles.split)):
                if isinstance(record, BadRow):
                    continue
                values = listed_labels(record, labels, self.options, where)
                if isinstance(values, BadRow):
                    bad = bad or BadRow(where, values.reason)
                found.update(values if isinstance(values, list) else ())
                raw = record.get(labels)
                for mark in joined_by(raw) if not self.options.label_separator else ():
                    marks.setdefault(mark, where)
                for value in raw if isinstance(raw, list) else ():
                    forms.setdefault(type(value), where)
        if len(marks) > 1:
            (first, there), (second, here) = list(marks.items())[:2]
            raise UserError(
                f"data set {self.name}: {first!r} stands between labels in {there}, and {second!r} in "
                f"{here}; type --label-separator {first!r} or --label-separator {second!r}"
            )
        if int in forms and str in forms:
            raise UserError(
                f"data set {self.name}: labels are ids in {forms[int]} and names in {forms[str]}; "
                "write them in one form, or list the names in labels.txt"
            )
        return found, bad

    def _records(
        self, part: str, columns: tuple[str, ...] | None = None
    ) -> Iterator[tuple[TableRecord | BadRow, str, Path]]:
        """Yield the records of a part, their places and folders, after the columns are checked."""
        first, strict = self.source.first, not self.options.chooses_columns
        for table in self.source.tables(part):
            check_columns(
                table, first, self.roles, part != "unlabelled", strict, self.source.listed
            )
            if part != "unlabelled" and not table.strict:
                check_named(table, first, self.roles.labels)
            for number, record in table.records(columns):
                where, folder = table.where(number), table.folder
                if not self.roles.split:
                    yield record, where, folder
                elif not self.source.single:
                    yield self._agreeing(record, part), where, folder
                elif isinstance(record, BadRow) or (of := self._part_of(record)) is None:
                    if part == "train":  # so that it is reported once
                        yield self._no_part(record), where, folder
                elif of == part:
                    yield record, where, folder

    def _agreeing(self, record: TableRecord | BadRow, part: str) -> TableRecord | BadRow:
        """The record of a table of a part; a BadRow if its split column says that it is of another."""
        named = (
            None if isinstance(record, BadRow) or part == "unlabelled" else self._part_of(record)
        )
        if isinstance(record, BadRow) or named in (None, part):
            return record
        column = self.roles.split
        return BadRow("", f"column {column} says {record[column]!r}, in a table of {part} rows")

    def _no_part(self, record: TableRecord | BadRow) -> BadRow:
        if isinstance(record, BadRow):
            return record
        column = self.roles.split
        return BadRow("", f"column {column}: {record.get(column)!r} is not train or test")

    def part_rows(self, part: str) -> Iterator[Row | BadRow]:
        """Yield the rows of a part's tables in order."""
        reader = RowReader(
            self.roles,
            self.options,
            self._names,
            bool(self._declared),
            bool(self._multi_hot),
            list(self.source.first.columns),
            self.folder or self.raw_folder(),
            self._forms,
            bool(self._named_by_format),
        )
        for record, where, near in self._records(part) if part in self._table_parts else ():
            if isinstance(record, BadRow):
                yield BadRow(where, record.reason)
            else:
                yield reader.row(record, part, where, near)
        if part == "train" and reader.asks_for_minus_one:
            raise never_zero(self.name)
        if self.source.listed:
            self._forms.check(self.source.listed, f"data set {self.name}")
        if part == "train" and self.source.listed and self._forms.ids and not self._forms.zero:
            raise counts_from(f"data set {self.name}", "write the names instead of ids")
        for file in self._loose if part == "unlabelled" else ():
            path = file.relative_to(self.home).as_posix()
            yield file_row(reader.finder, path, self.roles.kind, None)

    @cached_property
    def _declared(self) -> list[str]:
        """The names in labels.txt, or those that the format has; ids of labels count from 0 in them."""
        if not self.roles.labels:
            return self.source.listed
        named = self._named_by_format
        if self.source.listed and named and self.source.listed != named:
            raise UserError(
                f"{self.source.first.file}: its labels are {', '.join(named[:3])}…, those of labels.txt "
                f"are {', '.join(self.source.listed[:3])}…; leave labels.txt out"
            )
        return self.source.listed or named

    @cached_property
    def _named_by_format(self) -> list[str]:
        """The names that the format itself gives to the ids of labels."""
        return self.source.first.label_names(self.roles.labels) or [] if self.roles.labels else []

    @cached_property
    def _forms(self) -> LabelForms:
        """How the labels of all parts are written."""
        return LabelForms()

    @cached_property
    def _multi_hot(self) -> int:
        """K, if labels are lists of 0 and 1 with a place for each label; else 0."""
        if not self.roles.labels:
            return 0
        columns = (self.roles.labels, self.roles.split)
        cells = (
            record.get(self.roles.labels)
            for part in self.parts()
            if part != "unlabelled"
            for record, _, _ in self._records(part, columns)
            if isinstance(record, dict)
        )
        return multi_hot_width(cells, f"data set {self.name}")
