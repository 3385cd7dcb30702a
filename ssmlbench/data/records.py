"""Readers of CSV, TSV, JSONL, JSON and Parquet files: one record a row, with its line number.

A reader knows the names of its columns and, where the format declares them, their types.
"""

from __future__ import annotations

import csv
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from ssmlbench.core.errors import UserError
from ssmlbench.data.adapter import BadRow
from ssmlbench.data.parquet_metadata import BATCH_ROWS, check_metadata
from ssmlbench.data.text_files import (
    LONGEST_ROW,
    RowLines,
    check_plain,
    check_rows,
    file_ending,
    open_text,
    read_rest,
)
from ssmlbench.data.unread import unread_hint

TableRecord = dict[str, Any]
TableRecords = Iterator[tuple[int, TableRecord | BadRow]]
ColumnTypes = dict[str, str]
"""Column → "text", "number", "list of text", …; "" where the format does not declare it."""
HEADER_CHARACTERS = 2**20
"""How much of the first line of a CSV file is searched for the delimiter."""
QUOTES = 'a cell that starts with " ends with ", and each " inside it is written twice'


class Table(ABC):
    """One table: its columns, and its rows by name of column."""

    file: Path
    strict: ClassVar[bool] = True  # every row has every column; in JSONL each row names its own

    def __init__(self, file: Path):
        self.file = file

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self.file.name

    @property
    def folder(self) -> Path:
        """The folder that its paths start from, besides the data folder."""
        return self.file.parent

    def where(self, number: int) -> str:
        """The name of one of its rows in messages."""
        return f"{self.name} line {number}"

    @property
    @abstractmethod
    def columns(self) -> ColumnTypes:
        """The columns in their order."""

    @abstractmethod
    def records(self, columns: tuple[str, ...] | None = None) -> TableRecords:
        """Yield (line, record) pairs; in Parquet the line is the number of the row.

        columns: only these are needed, which spares Parquet the reading of the others.
        """

    def label_names(self, column: str) -> list[str] | None:
        """The names that the format itself gives to the ids in a label column, if it does."""
        return None


class Csv(Table):
    """Cells between commas, the names in the first line; or between semicolons, if it has no comma."""

    delimiter: ClassVar[str] = ","
    others: ClassVar[tuple[str, ...]] = (";", "\t")
    """Delimiters that are taken where the first line has one of them, and not the usual one."""

    @cached_property
    def columns(self) -> ColumnTypes:
        """The cells of the first line."""
        with self._reader() as (reader, _):
            header = self._header(reader)
        return dict.fromkeys(header, "")

    @cached_property
    def _found_delimiter(self) -> str:
        with open_text(self.file) as lines:
            first = lines.readline(HEADER_CHARACTERS)
        if self.delimiter in first:
            return self.delimiter
        return next((mark for mark in self.others if mark in first), self.delimiter)

    def _header(self, reader: Any) -> list[str]:
        try:
            header: list[str] = next(reader, [])
        except csv.Error as error:
            raise UserError(f"{self.file} line 1: not a table ({error}; {QUOTES})") from None
        check_once(self.file, header)
        return header

    @contextmanager
    def _reader(self) -> Iterator[tuple[Any, RowLines]]:
        csv.field_size_limit(2**31 - 1)
        with open_text(self.file) as text:
            lines = RowLines(self.file, text)
            # strict: else a quote that is opened and never closed takes all rows after it into its cell
            yield csv.reader(lines, delimiter=self._found_delimiter, strict=True), lines

    def records(self, columns: tuple[str, ...] | None = None) -> TableRecords:
        """Yield the rows; a row with more or fewer cells than the first line is a bad one."""
        with self._reader() as (reader, lines):
            header = self._header(reader)
            line = reader.line_num + 1
            while True:
                lines.start_row()
                try:
                    cells = next(reader)
                except StopIteration:
                    return
                except csv.Error as error:
                    if reader.line_num > line:  # never left out as one bad row: it holds others
                        raise UserError(
                            f"{self.file} lines {line} to {reader.line_num}: one row by its quotes "
                            f"({error}; {QUOTES})"
                        ) from None
                    yield line, BadRow("", f"not a row of a table ({error}; {QUOTES})")
                    line = reader.line_num + 1
                    continue
                if len(cells) > 1 and [cells[0].removeprefix("\ufeff"), *cells[1:]] == header:
                    again = "the names of the columns again, as if two files had been joined"
                    yield line, BadRow("", again)
                elif cells and len(cells) == len(header):
                    yield line, dict(zip(header, cells, strict=True))
                elif cells:
                    yield line, BadRow("", f"{len(cells)} columns, expected {len(header)}")
                line = reader.line_num + 1


class Tsv(Csv):
    """Cells between tabs, the names in the first line."""

    delimiter = "\t"
    others = ()


class JsonLines(Table):
    """A JSON object a line."""

    strict = False

    @cached_property
    def columns(self) -> ColumnTypes:
        """The names in the first object."""
        first = next((record for _, record in self.records() if isinstance(record, dict)), {})
        return dict.fromkeys(first, "")

    def records(self, columns: tuple[str, ...] | None = None) -> TableRecords:
        """Yield the objects; a line that is none is a bad row."""
        with open_text(self.file) as text:
            lines = RowLines(self.file, text)
            for number, line in enumerate(lines, start=1):
                lines.start_row()
                if line.strip():
                    yield number, _json_record(line)


def _json_record(line: str) -> TableRecord | BadRow:
    try:
        record = json.loads(line, object_pairs_hook=_object)
    except ValueError as error:
        return BadRow("", f"not JSON ({error})")
    except RecursionError:
        return BadRow("", "not a row: its lists or objects are nested too deep")
    return record if isinstance(record, dict) else BadRow("", "not a JSON object")


def _object(pairs: list[tuple[str, Any]]) -> TableRecord:
    """A JSON object; a ValueError if a name comes twice: readers take the first or the last value."""
    record = dict(pairs)
    if len(record) < len(pairs):
        twice = next(name for name, count in Counter(n for n, _ in pairs).items() if count > 1)
        raise ValueError(f"{twice!r} comes twice in one object")
    return record


class Json(JsonLines):
    """One JSON list of objects, or an object of columns, as pandas writes them; or an object a line."""

    def records(self, columns: tuple[str, ...] | None = None) -> TableRecords:
        """Yield the objects; the whole file is read at once, unless it has an object a line."""
        with open_text(self.file) as opened:
            first = opened.readline(LONGEST_ROW)
            line = _json_record(first)
            if isinstance(line, dict) and _columns_of(line) is None:
                yield from super().records(columns)
                return
            text = first + read_rest(self.file, opened)
        try:
            listed = json.loads(text, object_pairs_hook=_object)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{self.file}: not JSON ({error})") from None
        for number, record in enumerate(_listed_records(listed, self.file), start=1):
            bad = BadRow("", "not a JSON object")
            yield number, record if isinstance(record, dict) else bad


def _listed_records(listed: Any, file: Path) -> list[Any]:
    if isinstance(listed, dict) and (columns := _columns_of(listed)) is not None:
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]
    if not isinstance(listed, list):
        raise UserError(
            f"{file}: not a list of rows; write it as .jsonl (in pandas: to_json, orient='records', "
            "lines=True)"
        )
    return listed


def _columns_of(record: TableRecord) -> dict[str, list[Any]] | None:
    """The columns, if an object holds whole columns by row number, as pandas writes them; else None."""
    keys = [list(value) for value in record.values() if isinstance(value, dict)]
    if not keys or len(keys) < len(record) or not keys[0] or any(k != keys[0] for k in keys):
        return None
    return {name: list(value.values()) for name, value in record.items()}


class Parquet(Table):
    """A Parquet file."""

    @contextmanager
    def _open(self) -> Iterator[Any]:
        import pyarrow
        from pyarrow.parquet import ParquetFile

        try:
            with ParquetFile(self.file, memory_map=True) as table:
                check_rows(self.file, table.metadata.num_rows)
                check_metadata(self.file, table.metadata)
                yield table
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise UserError(f"{self.file}: not a Parquet file, or damaged ({reason})") from None

    @cached_property
    def columns(self) -> ColumnTypes:
        """The columns of the schema."""
        with self._open() as table:
            schema = table.schema_arrow
            check_once(self.file, schema.names)
            return {field.name: arrow_type(field.type) for field in schema}

    def records(self, columns: tuple[str, ...] | None = None) -> TableRecords:
        """Yield the rows, numbered from 1."""
        with self._open() as table:
            names = [n for n in table.schema_arrow.names if columns is None or n in columns]
            number = 0
            for batch in table.iter_batches(batch_size=BATCH_ROWS, columns=names):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record

    def label_names(self, column: str) -> list[str] | None:
        """The names that Hugging Face's library has written into the file."""
        with self._open() as table:
            metadata = (table.schema_arrow.metadata or {}).get(b"huggingface", b"{}")
        try:
            feature = json.loads(metadata)["info"]["features"][column]
            feature = feature.get("feature", feature)
            names = feature.get("names")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return [str(name) for name in names] if isinstance(names, list) else None


TABLES: dict[str, type[Table]] = {
    ".csv": Csv,
    ".tsv": Tsv,
    ".jsonl": JsonLines,
    ".json": Json,
    ".parquet": Parquet,
}
"""The reader of a table, by the end of the file's name."""


def read_table(file: Path) -> Table:
    """The reader of a file; a UserError if it is none of these, or no plain file."""
    if file_ending(file) not in TABLES:
        raise UserError(
            f"{file}: expected a file that ends with {', '.join(TABLES)}{unread_hint(file)}"
        )
    check_plain(file)
    return TABLES[file_ending(file)](file)


def read_records(file: Path, columns: tuple[str, ...] | None = None) -> TableRecords:
    """Read (line, record) pairs of a table file; in Parquet the line is the number of the row.

    columns: only these are needed, which spares Parquet the reading of the others.
    """
    return read_table(file).records(columns)


def check_once(file: Path, columns: list[str]) -> None:
    """Raise a UserError if two columns have one name."""
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise UserError(f"{file}: two columns are called {twice[0]!r}; rename one")


def arrow_type(kind: Any) -> str:
    """An Arrow type in the words of ColumnTypes; types that are read alike have one word."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return arrow_type(kind.value_type)
    if types.is_null(kind):
        return ""
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return "number"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        inner = arrow_type(kind.value_type)
        return {"number": "list of numbers", "": ""}.get(inner, f"list of {inner}")
    if types.is_binary(kind) or types.is_large_binary(kind):
        return "bytes"
    return str(kind)
