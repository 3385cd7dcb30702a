"""What `compare` costs over merely reading the result files: 10,000 synthetic finished runs.

Prints one line: the whole command, start included, over opening and json-loading the same files.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ssmlbench.metrics import DECISIONS, METRICS
from ssmlbench.spec import RunSpec
from ssmlbench.store import RunFolder

METHODS, DATASETS, LEVELS, SEEDS = 20, 10, 5, 10
FILE_BYTES = 10_000


def synthetic_runs(results: Path) -> int:
    """A full grid of finished runs, each file padded to the size of a long one."""
    count = 0
    for index in range(METHODS * DATASETS * LEVELS * SEEDS):
        method, rest = index % METHODS, index // METHODS
        dataset, rest = rest % DATASETS, rest // DATASETS
        level, seed = rest % LEVELS, rest // LEVELS
        spec = RunSpec(
            f"method_{method}",
            f"data_{dataset}",
            pi=0.05 * (level + 1),
            seed=seed,
            code="c",
            data="d",
        )
        spec = dataclasses.replace(spec, config={"scale": 20.0, "margin": 0.3})
        value = (index * 7919 % 10_007) / 10_007
        five = dict.fromkeys(METRICS, value)
        result = {
            "spec": spec.as_dict(),
            "hash": spec.hash,
            "metrics": {d: {"default": five, "released": five} for d in DECISIONS},
            "notes": [],
            "cost": {"seconds": 2.0, "seconds_per_epoch": 1.0, "peak_memory_mb": 3.0},
            "made_with": {"ssmlbench": "0.1.0"},
        }
        text = json.dumps(result, indent=1)
        result["notes"] = ["n" * 98 for _ in range((FILE_BYTES - len(text)) // 103)]
        folder = RunFolder.of(results, spec)
        folder.path.mkdir(parents=True)
        folder.result_file.write_text(json.dumps(result, indent=1))
        count += 1
    return count


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch) / "results"
        count = synthetic_runs(results)
        files = list(results.glob("*/*/*/*/result.json"))
        start = time.perf_counter()
        for file in files:
            json.loads(file.read_bytes())
        reading = time.perf_counter() - start
        start = time.perf_counter()
        command = [sys.executable, "-m", "ssmlbench", "compare", "--results", str(results)]
        subprocess.run(command, check=True, capture_output=True)
        whole = time.perf_counter() - start
    print(
        f"{count:,} runs: the whole command takes {whole / reading:.1f} x json-loading the files "
        f"({whole:.1f} s, {reading:.1f} s)"
    )


if __name__ == "__main__":
    main()
