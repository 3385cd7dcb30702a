"""Throughput of `--jobs 2` against `--jobs 1` on two cores: the same four runs, one after the other.

Two cores seldom do twice the work of one: beside it stands what two processes with a bare loop reach.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = (
    *("run", "--method", "cap", "--dataset", "multidigits", "--pi", "0.05"),
    *("--seeds", "4", "--epochs", "20", "--quiet"),
)


def seconds(jobs: int, folder: Path) -> float:
    """Of the four runs, in a new results folder."""
    where = ["--jobs", str(jobs), "--results", str(folder / str(jobs))]
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "ssmlbench", *RUNS, *where], check=True)
    return time.perf_counter() - began


LOOP = """
import torch
torch.set_num_threads(1)
rows, layer = torch.randn(96, 16, 28, 28), torch.nn.Conv2d(16, 32, 3, padding=1)
for _ in range(300):
    layer(rows).sum().backward()
"""


def machine() -> float:
    """Throughput of two processes with a bare loop against one."""

    def seconds_of(count: int) -> float:
        began = time.perf_counter()
        for process in [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(count)]:
            process.wait()
        return time.perf_counter() - began

    return statistics.median(2 * seconds_of(1) / seconds_of(2) for _ in range(3))


def main() -> None:
    prepare = [sys.executable, "-m", "ssmlbench", "data", "prepare", "multidigits"]
    subprocess.run(prepare, check=True, stdout=subprocess.DEVNULL)  # once, and not measured
    with tempfile.TemporaryDirectory() as folder:
        one, two = seconds(1, Path(folder)), seconds(2, Path(folder))
    print(
        f"--jobs 2 over --jobs 1: {one / two:.2f} × the throughput (bar: 1.8; {one:.0f} s, {two:.0f} s); "
        f"this machine with a bare loop: {machine():.2f} ×"
    )


if __name__ == "__main__":
    main()
