"""Readers of CSV, JSONL and Parquet files: one record a row, streamed, with its line number."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ssmlbench.core.errors import UserError
from ssmlbench.data.adapter import BadRow, numbered_lines

Records = Iterator[tuple[int, dict[str, Any] | BadRow]]
Columns = tuple[str, ...] | None


def read_records(file: Path, columns: Columns = None) -> Records:
    """Read (line, record) pairs of a CSV, JSONL or Parquet file; in Parquet the line is the row.

    columns: only these are needed, which spares Parquet the reading of the others.
    """
    if file.suffix not in READERS:
        raise UserError(f"{file}: expected a file that ends with {', '.join(READERS)}")
    return READERS[file.suffix](file, columns)


def _read_csv(file: Path, columns: Columns) -> Records:
    csv.field_size_limit(2**31 - 1)
    with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        reader = csv.reader(lines)
        header = next(reader, [])
        line = reader.line_num + 1
        for cells in reader:
            if len(cells) == len(header):
                yield line, dict(zip(header, cells, strict=True))
            elif cells:
                yield line, BadRow("", f"{len(cells)} columns, expected {len(header)}")
            line = reader.line_num + 1


def _read_jsonl(file: Path, columns: Columns) -> Records:
    for number, line in numbered_lines(file):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            yield number, BadRow("", f"not JSON ({error})")
            continue
        yield number, record if isinstance(record, dict) else BadRow("", "not a JSON object")


def _read_parquet(file: Path, columns: Columns) -> Records:
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(file, memory_map=True) as table:
            names = [n for n in table.schema_arrow.names if columns is None or n in columns]
            number = 0
            for batch in table.iter_batches(batch_size=200, columns=names):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record
    except pyarrow.ArrowInvalid as error:
        raise UserError(f"{file}: not a Parquet file ({error})") from None


READERS: dict[str, Callable[[Path, Columns], Records]] = {
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}
"""By the end of the file's name."""
