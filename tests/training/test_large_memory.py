"""Memory that grows with rows × labels, measured at two sizes: what a million rows take follows."""

from __future__ import annotations

import subprocess
import sys

import pytest

ROWS = 20_000, 60_000


def peak(side: str, method: str, rows: int) -> int:
    command = [sys.executable, "-m", "tests.support.large_runs", side, method, str(rows)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("side", "method"), [("training", "bce"), ("training", "logistic"), ("judge", "cap")]
)
def test_a_million_rows_of_a_hundred_labels_take_less_than_two_gigabytes(
    side: str, method: str
) -> None:
    few, many = (peak(side, method, rows) for rows in ROWS)
    each = (many - few) / (ROWS[1] - ROWS[0])
    assert few + each * (1_000_000 - ROWS[0]) < 2 * 2**30, (few, many)
