"""`make bench`: the figures of the design as ratios, each measured in one run."""

from __future__ import annotations

import runpy
from pathlib import Path


def main() -> None:
    for file in sorted(Path(__file__).parent.glob("bench_*.py")):
        print(f"\n== {file.stem.removeprefix('bench_')}", flush=True)
        runpy.run_path(str(file), run_name="__main__")


if __name__ == "__main__":
    main()
