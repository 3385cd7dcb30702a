"""The roles of a table's columns, and the check that another table has the same columns.

Columns are matched by name in every format, never by position.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ssmlbench.core.data_options import DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.data.adapter import Kind
from ssmlbench.data.label_cells import NO, YES, flag
from ssmlbench.data.media import kind_of_name
from ssmlbench.data.plain_numbers import is_number, plain_float
from ssmlbench.data.records import Table, TableRecord
from ssmlbench.data.traps import MISSING_NAMES
from ssmlbench.data.unnamed_columns import INDEX_COLUMNS, check_unnamed
from ssmlbench.data.user_files import PART_OF
from ssmlbench.data.value_names import check_meaning, check_same_names

TEXT_COLUMNS = ("text", "sentence", "document")
IMAGE_COLUMNS = ("image", "image_path", "file_name", "path")
FILE_COLUMNS = ("filename", "file", "image_name", "image_id", "img")
"""Columns of images or texts too, if they hold names of such files."""
VECTOR_COLUMNS = ("vector", "features", "embedding", "embeddings")
ID_COLUMNS = ("id", "uid", "doc_id")
LABEL_COLUMNS = ("labels", "label")
SPLIT_COLUMNS = ("split",)
TRANSLATION_COLUMN = "back_translation"
SPLIT_FLAG = re.compile(r"(?:is|in)[\W_]*([a-z]+?)(?:[\W_]*set)?")
"""What a column of 0 and 1 may be called that tells training rows from test rows."""
OLD_INDEX = re.compile(r"index|level_\d+|Unnamed: \d+(\.\d+)*")
"""What pandas calls the row numbers of a table that had them once, in whatever order they are now."""
COUNTED, FEWEST_COUNTED = 100, 8
"""Rows that are looked at to find a column that counts them, and the fewest that tell."""


@dataclass(frozen=True)
class Roles:
    """The roles of a table's columns."""

    kind: Kind
    inputs: tuple[str, ...]  # one column; or, of a vector, one column a number
    labels: str  # the column with lists; "" if there is a 0/1 column per label
    flags: tuple[str, ...]
    id: str
    split: str = ""
    translation: str = ""
    in_files: bool = False  # the texts are in files of their own, which the column names

    @property
    def optional(self) -> set[str]:
        """Columns that a table may lack."""
        usual = {*ID_COLUMNS, *SPLIT_COLUMNS, TRANSLATION_COLUMN, *INDEX_COLUMNS}
        return usual | {self.id, self.split, self.translation}

    def used(self, labelled: bool) -> list[str]:
        """Columns that every table must have; the labels only where rows are labelled."""
        labels = [self.labels] if self.labels else list(self.flags)
        return [*self.inputs, *(labels if labelled else ())]


def choose_roles(table: Table, options: DataOptions, listed: Sequence[str]) -> Roles:
    """The roles of a table's columns, as the options say or by their usual names.

    listed: the names in labels.txt, which may be columns.
    """
    columns = list(table.columns)
    if not options.chooses_columns:
        check_unnamed(table)
    id_ = _one(options.id_column, "--id-column", ID_COLUMNS, table)
    split = _one(options.split_column, "--split-column", SPLIT_COLUMNS, table)
    translation = TRANSLATION_COLUMN if TRANSLATION_COLUMN in columns else ""
    named = _several(options.label_column, "--label-column", table)
    if len(named) == 1 and "*" not in options.label_column:
        labels, flags = named[0], []
    elif named:
        labels, flags = "", named
    else:
        labels = next((c for c in LABEL_COLUMNS if c in columns), "")
        flags = [] if labels else _listed_columns(table, listed)
    known = {id_, split, translation, labels, *flags, *INDEX_COLUMNS}
    kind, inputs = _inputs(table, options, known, bool(labels or flags))
    if kind != "text":
        translation = ""
    if not labels and not flags:
        others = [c for c in columns if c not in known and c not in inputs]
        usual = {*TEXT_COLUMNS, *IMAGE_COLUMNS, *ID_COLUMNS}
        flags = flag_columns(table, [c for c in others if c not in usual])
        if flags:
            _check_listed(table, flags, listed)
            _check_others(table, [c for c in others if c not in flags])
            _check_no_split(table, flags)
    elif labels and not named:
        _check_not_one_of(table, labels, [c for c in columns if c not in known and c not in inputs])
    used = [*inputs, *flags, *filter(None, (labels, split))]
    if twice := next((c for c in used if used.count(c) > 1), ""):
        raise UserError(
            f"{table.file}: column {twice!r} is read as two of inputs, labels and split; name another "
            "one with --text-column, --image-column, --vector-column, --label-column or --split-column"
        )
    in_files = kind == "text" and names_texts(table, inputs[0])
    return Roles(kind, tuple(inputs), labels, tuple(flags), id_, split, translation, in_files)


def names_texts(table: Table, column: str) -> bool:
    """Whether a column holds names of text files instead of texts."""
    first = first_values(table, [column]).get(column)
    return column not in TEXT_COLUMNS and kind_of_name(first) == "text"


def _one(name: str, option: str, usual: Iterable[str], table: Table) -> str:
    if name:
        _check_there(name, option, table)
        return name
    return next((c for c in usual if c in table.columns), "")


def _several(text: str, option: str, table: Table) -> list[str]:
    """The columns of `a,b` or `label_*`, in the order of the table where a `*` chooses them."""
    chosen: list[str] = []
    if text and text in table.columns:  # a name with a comma in it
        return [text]
    for pattern in filter(None, (part.strip() for part in text.split(","))):
        if "*" not in pattern:
            _check_there(pattern, option, table)
        found = _matching(pattern, table)
        if not found:
            raise UserError(f"{option} {pattern}: no column of {table.name} matches")
        chosen += [c for c in found if c not in chosen]
    return chosen


def _matching(pattern: str, table: Table) -> list[str]:
    """The column of this name, or those that a `*` in it stands for; `[` and `?` mean themselves."""
    if pattern in table.columns:
        return [pattern]
    anything = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
    return [column for column in table.columns if anything.fullmatch(column)]


def _check_there(name: str, option: str, table: Table) -> None:
    if name not in table.columns:
        hint = did_you_mean(name, table.columns)
        raise UserError(f"{option} {name}: {table.name} has no such column.{hint}")


def _listed_columns(table: Table, listed: Sequence[str]) -> list[str]:
    """The labels of labels.txt that are columns: all of them, or none."""
    there = [name for name in listed if name in table.columns]
    if there and len(there) < len(listed):
        absent = next(name for name in listed if name not in table.columns)
        raise UserError(f"{table.name}: no column {absent!r}, a label in labels.txt")
    return there


def _check_listed(table: Table, flags: Sequence[str], listed: Sequence[str]) -> None:
    """Raise a UserError if labels.txt names labels, and none of the 0/1 columns."""
    if listed:
        raise UserError(
            f"{table.file}: its columns of labels are {', '.join(flags[:3])}…, those of labels.txt are "
            f"{', '.join(listed[:3])}…; give both the same names, or take labels.txt away"
        )


def _check_one_kind(options: DataOptions) -> None:
    """Raise a UserError if columns of two kinds of inputs are named."""
    kinds = ("text_column", "image_column", "vector_column")
    if len(typed := [name for name in kinds if getattr(options, name)]) > 1:
        first, second = (f"--{name.replace('_', '-')}" for name in typed[:2])
        raise UserError(f"{first} and {second} are both given; a row has one input, so keep one")


def _inputs(
    table: Table, options: DataOptions, known: set[str], has_labels: bool
) -> tuple[Kind, list[str]]:
    """The kind of the inputs, and their columns."""
    if not table.columns:
        raise UserError(f"{table.file}: no readable first row in it")
    _check_one_kind(options)
    if options.text_column:
        return "text", [_one(options.text_column, "--text-column", (), table)]
    if options.image_column:
        return "image", [_one(options.image_column, "--image-column", (), table)]
    if options.vector_column:
        return "vector", _several(options.vector_column, "--vector-column", table)
    usual: tuple[tuple[Kind, tuple[str, ...]], ...] = (
        ("text", TEXT_COLUMNS),
        ("image", IMAGE_COLUMNS),
        ("vector", VECTOR_COLUMNS),
    )
    for kind, names in usual:
        if found := next((c for c in names if c in table.columns and c not in known), ""):
            texts = kind == "image" and names_texts(table, found)
            _check_one_input(table, kind, found, known)
            return "text" if texts else kind, [found]
    rest = [c for c in table.columns if c not in known]
    first = first_values(table, rest)
    for column in [*(c for c in FILE_COLUMNS if c in rest), *rest]:
        if named := kind_of_name(first.get(column)):
            return named, [column]
    words = next((c for c in rest if not is_number(first.get(c))), "")
    if words or not rest or not has_labels:
        why = f"{words!r} is not a column of numbers" if words else "its labels are not named"
        flags = ",".join(flag_columns(table, rest)) if not words and not has_labels else ""
        hint = f". If the 0/1 columns are the labels, type --label-column {shlex.quote(flags)}"
        raise UserError(
            f"{table.file}: no text or image column (it has: {', '.join(table.columns)}), and {why}; "
            "type --text-column, --image-column or --vector-column, and --label-column"
            f"{hint if flags else ''}"
        )
    if len(rest) > 1:
        _check_counters(table, rest)
    return "vector", rest


def _check_one_input(table: Table, kind: Kind, chosen: str, known: set[str]) -> None:
    """Raise a UserError if there is a column of images or vectors beside one of another kind."""
    others: dict[str, Kind] = dict.fromkeys(VECTOR_COLUMNS, "vector")
    others |= dict.fromkeys(IMAGE_COLUMNS, "image") if kind == "text" else {}
    there = [c for c in others if c in table.columns and c not in known and kind != "vector"]
    for column, value in (first_values(table, there) if there else {}).items():
        numbers = isinstance(value, list) and all(map(is_number, value))
        picture = isinstance(value, bytes | dict) or kind_of_name(value) == "image"
        if numbers if others[column] == "vector" else picture:
            raise UserError(
                f"{table.file}: the inputs may be in {chosen!r} or in {column!r}; type --{kind}-column "
                f"{chosen} or --{others[column]}-column {column}"
            )


def tells_split(column: str) -> bool:
    """Whether the name of a column says that its 0 and 1 tell training rows from test rows."""
    named = SPLIT_FLAG.fullmatch(column.lower())
    return named is not None and (named[1] in PART_OF or named[1].removesuffix("ing") in PART_OF)


def _check_no_split(table: Table, flags: Sequence[str]) -> None:
    """Raise a UserError for a 0/1 column that would be a label, and tells test rows by its name."""
    if column := next(filter(tells_split, flags), ""):
        raise UserError(
            f"{table.file}: column {column!r} seems to tell training rows from test rows; write a column "
            "`split` of train and test instead, or name the columns of labels with --label-column"
        )


def _check_not_one_of(table: Table, labels: str, others: Sequence[str]) -> None:
    """Raise a UserError if the column of labels is one of 0 and 1, and so are others beside it."""
    rows = islice(table.records((labels,)), COUNTED)
    cells = [record.get(labels) for _, record in rows if isinstance(record, dict)]
    if all(_is_unknown(cell) or isinstance(flag(cell), int) for cell in cells) and (
        flags := flag_columns(table, others)
    ):
        every = shlex.quote(",".join([labels, *flags]))
        raise UserError(
            f"{table.file}: column {labels!r} has 0 and 1, and so has {flags[0]!r}; type --label-column "
            f"{every} if each is a label, or --label-column {labels} if the others are none"
        )


def _check_others(table: Table, columns: Sequence[str]) -> None:
    """Raise a UserError for a column that may be one of labels beside those of 0 and 1.

    It has words for 0 and 1, or mostly 0 and 1 after another value.
    """
    rows = islice(table.records(tuple(columns)), COUNTED)
    records = [record for _, record in rows if isinstance(record, dict)]
    for column in columns:
        values = [record.get(column) for record in records]
        known = [value for value in values if not _is_unknown(value) and not _is_missing(value)]
        words = [value for value in known if str(value).strip(" '\"").lower() in {*YES, *NO}]
        zero_one = [value for value in known if isinstance(flag(_unquoted(value)), int)]
        said = words[:1] if known[:1] == words[:1] or len(words) == len(known) else []
        if said or 2 * len(zero_one) > len(known):
            raise UserError(
                f"{table.file}: column {column!r} says {(said or known)[0]!r}, and others 0 and 1; write "
                "it as 0 and 1, or name the columns of labels with --label-column"
            )


def _is_missing(value: Any) -> bool:
    return str(value).strip().lower() in MISSING_NAMES


def _unquoted(value: Any) -> str:
    """A cell without quotes of its own, and with a point for a decimal comma."""
    return str(value).strip(" '\"").replace(",", ".")


def _check_counters(table: Table, columns: Sequence[str]) -> None:
    """Raise a UserError if a column of numbers counts the rows: it would be a feature."""
    rows = [r for _, r in islice(table.records(tuple(columns)), COUNTED) if isinstance(r, dict)]
    for column in columns if len(rows) >= FEWEST_COUNTED else ():
        values = [row.get(column) for row in rows]
        if not all(map(is_number, values)):
            continue
        numbers = [plain_float(value) for value in values]
        in_order = all(number == numbers[0] + k for k, number in enumerate(numbers))
        whole = all(number.is_integer() for number in numbers) and len({*numbers}) == len(numbers)
        if in_order or (whole and OLD_INDEX.fullmatch(column)):
            raise UserError(
                f"{table.file}: column {column!r} counts the rows; name it `id`, or name the inputs with "
                "--vector-column"
            )


def flag_columns(table: Table, columns: Sequence[str]) -> list[str]:
    """The columns whose first known value is 0 or 1."""
    first = first_values(table, columns)
    return [c for c in columns if isinstance(flag(first.get(c)), int)]


def unused_numbers(table: Table, roles: Roles) -> list[str]:
    """The columns of numbers that are neither inputs nor labels."""
    used = {*roles.inputs, *roles.flags, roles.labels, *roles.optional}
    rest = [c for c in table.columns if c not in used]
    return [c for c, value in first_values(table, rest).items() if is_number(value)]


def first_values(table: Table, columns: Sequence[str]) -> TableRecord:
    """The first value of each column that is not unknown."""
    first: TableRecord = {}
    for _, record in table.records(tuple(columns)):
        if isinstance(record, dict):
            for column in columns:
                if column not in first and not _is_unknown(record.get(column)):
                    first[column] = record[column]
        if len(first) == len(columns):
            break
    return first


def _is_unknown(value: Any) -> bool:
    return flag(value) is None


def check_columns(
    table: Table, first: Table, roles: Roles, labelled: bool, all_: bool, listed: Sequence[str] = ()
) -> None:
    """Raise a UserError unless a table has the columns of the first one, of the same types.

    labelled: whether its rows have labels. all_: whether columns that are not used count too.
    listed: the names in labels.txt.
    """
    if table.strict:
        for column in roles.used(labelled):
            if column not in table.columns:
                hint = did_you_mean(column, table.columns)
                raise UserError(
                    f"{table.file}: no column {column!r}, which {first.name} has.{hint}"
                )
    for column in roles.used(labelled):
        here, there = table.columns.get(column, ""), first.columns.get(column, "")
        if here and there and here != there:
            raise UserError(
                f"{table.file}: column {column!r} holds {here}, in {first.name} it holds {there}; "
                "write both in one form"
            )
    for column in roles.flags if labelled else ():
        check_meaning(table, column)
    for column in roles.used(labelled) if table is not first else ():
        check_same_names(table, first, column, listed if column == roles.labels else None)
    if all_ and labelled and table.strict and first.strict:
        ours, theirs = (set(t.columns) - roles.optional for t in (table, first))
        for column in sorted(ours ^ theirs):
            lacks, has = (table, first) if column in theirs else (first, table)
            raise UserError(
                f"{has.file}: column {column!r} is not in {lacks.name}; give both the same columns, "
                "or name those to use with --label-column and --text-column, --image-column or "
                "--vector-column"
            )


def check_named(table: Table, first: Table, labels: str) -> None:
    """Raise a UserError if no row of a table has the column of labels: it is spelled in another way.

    For tables in which each row names its own columns.
    """
    if not labels:
        return
    names: set[str] = set()
    for _, record in table.records((labels,)):
        if isinstance(record, dict):
            if labels in record:
                return
            names |= record.keys()
    if names:
        hint = did_you_mean(labels, sorted(names))
        raise UserError(f"{table.file}: no column {labels!r}, which {first.name} has.{hint}")
