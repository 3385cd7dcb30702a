"""Whether the metadata of a Parquet file can be believed, before a row is read."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

BATCH_ROWS, LARGE_BATCH, PACKED_TIMES = 200, 2**28, 500
"""Rows of a Parquet file that are read at once, the bytes that they may take, and from which share of
packed bytes on that is looked at."""


def check_metadata(file: Path, metadata: Any) -> None:
    """Raise a ValueError or an error of pyarrow if parts and columns cannot be what they claim.

    A false number of rows costs gigabytes: without columns, pyarrow makes as many rows as a part claims.
    """
    parts = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    if min(parts, default=0) < 0 or sum(parts) != metadata.num_rows:
        raise ValueError(f"its parts have {sum(parts):,} rows, the file {metadata.num_rows:,}")
    _check_columns(file, metadata)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            _check_packing(column, group.num_rows)


class _PageRead(Exception):
    """A page was about to be read."""


class _NoPages(io.RawIOBase):
    """A file of some size, of which nothing is read."""

    def __init__(self, size: int):
        self.size, self.place = size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.place = offset + (0, self.place, self.size)[whence]
        return self.place

    def tell(self) -> int:
        return self.place

    def read(self, size: int = -1) -> bytes:
        raise _PageRead


def _check_columns(file: Path, metadata: Any) -> None:
    """Raise an error of pyarrow if the metadata of a column is damaged.

    `RowGroupMetaData.column` ends the process for such a column. A reader raises an error before it reads
    the column's first page, which it is not given.
    """
    from pyarrow import PythonFile
    from pyarrow.parquet import ParquetFile

    pages = PythonFile(_NoPages(file.stat().st_size), mode="r")
    with ParquetFile(pages, metadata=metadata) as table:
        for group in range(metadata.num_row_groups):
            for column in range(metadata.num_columns):
                try:
                    table.reader.read_row_group(group, column_indices=[column], use_threads=False)
                except _PageRead:
                    continue


def _check_packing(column: Any, rows: int) -> None:
    """Raise a ValueError if a few bytes of a column take gigabytes in a batch of rows."""
    packed, values = max(column.total_compressed_size, 1), column.num_values
    batch = min(rows, BATCH_ROWS) or 1
    if column.physical_type == "BYTE_ARRAY":  # each row may have the longest value of a dictionary
        suspect = column.total_uncompressed_size > PACKED_TIMES * packed
        taken = column.total_uncompressed_size * batch
    else:  # lists of numbers
        suspect = values > PACKED_TIMES * packed
        taken = 8 * values // max(rows, 1) * batch
    if suspect and taken > LARGE_BATCH:
        raise ValueError(
            f"{packed:,} bytes of column {column.path_in_schema} take up to {taken / 2**30:,.1f} GiB"
        )
