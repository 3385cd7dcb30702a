"""Parquet files whose metadata are damaged: read, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ssmlbench.core.errors import UserError
from ssmlbench.data.records import read_table

FOOTER = 8
"""The bytes behind the metadata: their length, and `PAR1`."""


def test_metadata_with_a_flipped_bit_are_read_or_refused(tmp_path: Path) -> None:
    """Some of these files ended the process: pyarrow lets an error of a column's metadata end it."""
    file = tmp_path / "train.parquet"
    rows = pa.table({"text": ["a", "b"], "labels": [["x"], []]})
    pq.write_table(rows, file, store_schema=False)
    good = file.read_bytes()
    metadata = int.from_bytes(good[-FOOTER:-4], "little")
    refused: list[str] = []
    for place in range(len(good) - FOOTER - metadata, len(good) - FOOTER):
        file.write_bytes(good[:place] + bytes([good[place] ^ 2]) + good[place + 1 :])
        try:
            assert len(list(read_table(file).records())) == rows.num_rows
        except UserError as error:
            refused.append(str(error))
    assert len(refused) > metadata / 4
    assert not any("\n" in line for line in refused)
