"""Throughput of `--jobs 2` against `--jobs 1` on two cores: the same four runs, one after the other."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path


def seconds(jobs: int, folder: Path) -> float:
    began = time.perf_counter()
    subprocess.run(
        [
            sys.executable, "-m", "ssmlbench", "run", "--method", "cap", "--dataset", "multidigits",
            "--pi", "0.05", "--seeds", "4", "--epochs", "20", "--jobs", str(jobs),
            "--results", str(folder / str(jobs)), "--quiet",
        ],
        check=True,
    )  # fmt: skip
    return time.perf_counter() - began


def main() -> None:
    prepare = [sys.executable, "-m", "ssmlbench", "data", "prepare", "multidigits"]
    subprocess.run(prepare, check=True, stdout=subprocess.DEVNULL)  # once, and not measured
    with tempfile.TemporaryDirectory() as folder:
        one, two = seconds(1, Path(folder)), seconds(2, Path(folder))
    print(
        f"--jobs 2 over --jobs 1: {one / two:.2f} × the throughput (bar: 1.8; {one:.0f} s, {two:.0f} s)"
    )


if __name__ == "__main__":
    main()
