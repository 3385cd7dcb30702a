"""What `compare` costs over merely reading the result files: 10,000 synthetic finished runs.

Prints one line: the whole command, start included, over opening and json-loading the same files.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ssmlbench.core.spec import RunSpec
from ssmlbench.protocol.decisions import RULES
from ssmlbench.protocol.metrics import METRICS
from ssmlbench.runs.folder import RunFolder

METHODS, DATASETS, LEVELS, SEEDS = 20, 10, 5, 10


def synthetic_runs(results: Path) -> int:
    """A full grid of finished runs, each file with all that a real one has."""
    axes = itertools.product(range(METHODS), range(DATASETS), range(LEVELS), range(SEEDS))
    count = 0
    for method, dataset, level, seed in axes:
        count += 1
        spec = RunSpec(
            f"method_{method}",
            f"data_{dataset}",
            pi=0.05 * (level + 1),
            seed=seed,
            config={"scale": 20.0, "margin": 0.3, "loss": "asl", "balance": True, "share": 0.998},
            code="0d326d669982",
            data="67b611430f45ae3a",
        )
        five = dict.fromkeys(METRICS, (count * 7919 % 10_007) / 10_007)
        result = {
            "spec": spec.as_dict(),
            "hash": spec.hash,
            "observation": "6bea7edb81b2",
            "metrics": {d: {"default": five, "released": five} for d in RULES},
            "selected_epoch": 40,
            "steps": 2520,
            "labels_without_test_positive": 0,
            "notes": [
                "2 of 20 labels have no labelled positive (a, b); nothing can be learnt of them"
            ],
            "cost": {"seconds": 31.8, "seconds_per_epoch": 0.77, "peak_memory_mb": 451.4},
            "made_with": {"ssmlbench": "0.1.0", "torch": "2.13.0", "device": "cpu", "threads": 1},
            "data": {"rows": {"train": 4000, "test": 2000}, "labels": 10},
        }
        folder = RunFolder.of(results, spec)
        folder.path.mkdir(parents=True)
        folder.result_file.write_text(json.dumps(result, indent=1))
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
