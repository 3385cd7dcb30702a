"""Memory that grows with rows × labels, measured at two sizes: what a million rows take follows."""

from __future__ import annotations

import subprocess
import sys

import pytest

ROWS = 20_000, 60_000
MORE_ROWS = 100_000, 200_000  # of methods that work on blocks of labels: both sizes have whole ones


def peak(side: str, method: str, rows: int) -> int:
    command = [sys.executable, "-m", "tests.support.large_runs", side, method, str(rows)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("side", "method", "sizes", "most"),
    [
        ("training", "bce", ROWS, 2.0),
        ("training", "logistic", ROWS, 2.0),
        ("training", "cap", MORE_ROWS, 2.0),
        (
            "training",
            "bbam",
            MORE_ROWS,
            2.25,
        ),  # 2.1 measured at a million rows: features of all of them
        ("judge", "cap", ROWS, 2.0),
    ],
)
def test_a_million_rows_of_a_hundred_labels_take_about_two_gigabytes(
    side: str, method: str, sizes: tuple[int, int], most: float
) -> None:
    few, many = (peak(side, method, rows) for rows in sizes)
    each = (many - few) / (sizes[1] - sizes[0])
    assert few + each * (1_000_000 - sizes[0]) < most * 2**30, (few, many)
