"""What many finished runs cost: `compare`, `status`, `report`, and a `run` that finds all its runs made.

Each line has the processor seconds of the whole command and, as a ratio, what they are of opening and
json-loading the result files, or of `ssmlbench --help` where nothing has to be read. The runs are made
up, with all files that a real one has. `bench_compare.py 100000` measures that many runs as well.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ssmlbench.core.checksums import file_facts
from ssmlbench.core.files import write_json
from ssmlbench.core.spec import RunSpec
from ssmlbench.protocol.decisions import RULES
from ssmlbench.protocol.metrics import METRICS
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.scores import StoredScores

METHODS, DATASETS, LEVELS, SEEDS = 20, 10, 5, 10
PLANNED_LEVELS, PLANNED_RUNS = "0.05,0.1,0.15,0.2,0.3", 2_000
PLANNED_METHODS = ("bce", "asl", "cap", "bbam", "fixmatch", "softmatch", "d2l_mat", "drml")
LABELS, TEST_ROWS, EPOCHS = 10, 400, 40
MEASURED = ("precision", "recall", "f1", "average_precision", "threshold")


def grid(runs: int) -> Iterable[RunSpec]:
    """Specs of a full grid over methods, levels and seeds, on as many data sets as that takes."""
    datasets = max(1, runs // (METHODS * LEVELS * SEEDS))
    axes = itertools.product(range(METHODS), range(datasets), range(LEVELS), range(SEEDS))
    for method, dataset, level, seed in axes:
        yield RunSpec(
            f"method_{method}",
            f"data_{dataset}",
            pi=0.05 * (level + 1),
            seed=seed,
            config={"scale": 20.0, "margin": 0.3, "loss": "asl", "balance": True, "share": 0.998},
            code="ast-0d326d669982",
            data="67b611430f45ae3a",
        )


def planned() -> list[RunSpec]:
    """The specs that `run` below plans."""
    from ssmlbench.grid.request import GridRequest, expand
    from ssmlbench.plugins.loader import Plugins

    levels = tuple(map(float, PLANNED_LEVELS.split(",")))
    seeds = tuple(range(PLANNED_RUNS // len(levels) // len(PLANNED_METHODS)))
    axes = {"method": PLANNED_METHODS, "dataset": ("multidigits",), "pi": levels, "seed": seeds}
    return expand(Plugins(()), GridRequest(axes))


def write_run(results: Path, spec: RunSpec, number: int, beside: bool) -> None:
    """One finished run. beside: with scores and history too."""
    quality = (number * 7919 % 10_007) / 10_007
    five = dict.fromkeys(METRICS, quality)
    folder = RunFolder.of(results, spec)
    folder.path.mkdir(parents=True)
    if beside:
        _write_scores_and_history(folder, quality)
    rows = dict.fromkeys(MEASURED, [quality] * LABELS)
    result: dict[str, Any] = {
        "version": 3,
        "spec": spec.as_dict(),
        "hash": spec.hash,
        "observation": "6bea7edb81b2",
        "metrics": {d: {"default": five, "released": five} for d in RULES},
        "selected_epoch": 40,
        "steps": 2520,
        "uses": "both pools",
        "labels_without_test_positive": 0,
        "per_label": {
            "rule": "calibrated",
            "label": list(map(str, range(LABELS))),
            "support": [100] * LABELS,
            **rows,
        },
        "notes": ["2 of 20 labels have no labelled positive (a, b); nothing can be learnt of them"],
        "cost": {"seconds": 31.8, "seconds_per_epoch": 0.77, "peak_memory_mb": 451.4},
        "made_with": {"ssmlbench": "0.2.0", "torch": "2.13.0", "device": "cpu", "threads": 1},
        "data": {"rows": {"train": 4000, "test": TEST_ROWS}, "labels": LABELS},
        "files": file_facts(folder.path, folder.written_files()) if beside else {},
    }
    write_json(folder.result_file, result, durable=False)


def _write_scores_and_history(folder: RunFolder, quality: float) -> None:
    random = np.random.default_rng(int(1e6 * quality))
    truth = random.random((TEST_ROWS, LABELS)) < 0.3
    scores = (quality * truth + (1 - quality) * random.random(truth.shape)).astype(np.float32)
    StoredScores(scores, truth, {"thresholds": np.full(LABELS, 0.5, np.float32)}).write(
        folder.scores_file
    )
    columns = ("loss_labelled", "loss_unlabelled", "pseudo_precision", "pseudo_recall")
    lines = [",".join(("epoch", "phase", "steps", "seconds", *columns))]
    for epoch in range(1, EPOCHS + 1):
        values = (f"{quality + 1 / epoch:.6f}" for _ in columns)
        lines.append(",".join((str(epoch), "semi", str(63 * epoch), "0.8", *values)))
    folder.history_file.write_text("\n".join(lines) + "\n")


def seconds_of(command: Sequence[str]) -> float:
    """Processor seconds of a whole command; the better of two: the first may fill the index."""
    times = []
    for _ in range(2):
        start = _of_children()
        subprocess.run(
            [sys.executable, "-m", "ssmlbench", *command], check=True, capture_output=True
        )
        times.append(_of_children() - start)
    return min(times)


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds_of_reading(results: Path) -> float:
    """Processor seconds of opening and json-loading every result."""
    files = list(results.glob("*/*/*/*/result.json"))
    start = time.process_time()
    for file in files:
        json.loads(file.read_bytes())
    return time.process_time() - start


def boards(scratch: Path, runs: int) -> None:
    """`compare` and `status` over so many runs."""
    results = scratch / f"results-{runs}"
    for number, spec in enumerate(grid(runs)):
        write_run(results, spec, number, beside=False)
    reading = seconds_of_reading(results)
    for verb in ("compare", "status"):
        whole = seconds_of([verb, "--results", str(results)])
        print(
            f"{runs:,} runs, {verb}: {whole:.1f} s, {whole / reading:.1f} x json-loading the results"
        )


def made_runs(scratch: Path) -> None:
    """A `run` of finished specs, and their report."""
    results = scratch / "planned"
    specs = planned()
    for number, spec in enumerate(specs):
        write_run(results, spec, number, beside=True)
    names = ",".join(PLANNED_METHODS)
    seeds = len({spec.seed for spec in specs})
    grid_ = ["--dataset", "multidigits", "--pi", PLANNED_LEVELS, "--seeds", str(seeds)]
    where = ["--results", str(results)]
    again = seconds_of(["run", "--method", names, *grid_, *where])
    one = seconds_of(["run", "--method", "bce", *grid_[:2], "--pi", "0.05", "--seed", "0", *where])
    print(
        f"{len(specs):,} runs, run again: {again:.1f} s, {again - one:.1f} s more than one of them"
    )
    page = seconds_of(["report", *where, "--out", str(scratch / "report.html")])
    start = seconds_of(["--help"])
    print(f"{len(specs):,} runs, report: {page:.1f} s, {page / start:.0f} x --help")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        os.environ["SSMLBENCH_CACHE"] = str(scratch / "cache")
        made_runs(scratch)
        for runs in (METHODS * DATASETS * LEVELS * SEEDS, *map(int, sys.argv[1:])):
            boards(scratch, runs)


if __name__ == "__main__":
    main()
