"""The golden runs: what is trained, and what of each run is written to table.json.

`python -m tests.golden.runs` rewrites the table. Do that only together with a new PROTOCOL_VERSION:
the table says what the trainer, the views, the scaling, the optimiser, the average of the weights, the
decision rules and the metrics of one protocol version give.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file
from typer.testing import CliRunner

from ssmlbench.core.spec import PROTOCOL_VERSION
from tests.support.tiny_models import save_tiny_bert

TABLE = Path(__file__).with_name("table.json")
DATA = Path(__file__).with_name("data_sets.py")
BERT = "tiny-bert"
"""Stands for the folder of the tiny BERT in the options below."""

SHORT = "--epochs 3 --warmup-epochs 1 --batch-size 16 --labelled-batch-size 8 --seed 3"
IMAGES = "--dataset golden-images"
VECTORS = "--dataset golden-vectors"
TEXTS = f"--dataset golden-texts --backbone {BERT} --max-tokens 16"

RULE_NAMES = ("calibrated", "threshold", "top-k")
METRIC_KEYS = ("hamming", "macro_f1", "map", "micro_f1", "one_loss")
"""What the table holds: rules and metrics that are added later change no number in it."""

RUNS = {
    "images, full": f"--method bce {IMAGES} --regime full",
    "images, semi, cap": f"--method cap {IMAGES} --pi 0.3",
    "images, semi, fixmatch": f"--method fixmatch {IMAGES} --pi 0.3 --set threshold=0.5",
    "images, semi, d2l_mat": f"--method d2l_mat {IMAGES} --pi 0.3",
    "images, partial positives, em_apl": (
        f"--method em_apl {IMAGES} --regime partial-positive --share 0.5"
    ),
    "vectors, semi, bce, epoch of labelled rows": (
        f"--method bce {VECTORS} --pi 0.3 --recipe paper --epoch labelled --scaling none "
        "--weight-decay 0.5"
    ),
    "vectors, semi, flatmatch, stratified": (
        f"--method flatmatch {VECTORS} --pi 0.3 --split stratified"
    ),
    "vectors, semi, drml, best epoch on held-out rows": (
        f"--method drml {VECTORS} --pi 0.4 --selection val"
    ),
    "vectors, semi, cap": f"--method cap {VECTORS} --pi 0.3",
    "vectors, semi, cap, the papers' recipe": f"--method cap {VECTORS} --pi 0.3 --recipe paper",
    "vectors, semi, bbam": f"--method bbam {VECTORS} --pi 0.3",
    "vectors, semi, hml": f"--method hml {VECTORS} --pi 0.3",
    "vectors, single positive, role": f"--method role {VECTORS} --regime single-positive",
    "vectors, partial positives, llr": (
        f"--method llr {VECTORS} --regime partial-positive --share 0.5"
    ),
    "frozen texts, semi, cap": f"--method cap {TEXTS} --pi 0.3 --freeze --strong-views 2",
    "texts, single positive, an": f"--method an {TEXTS} --regime single-positive --lr 0.001",
}


def make(name: str, bert: Path, folder: Path) -> dict[str, Any]:
    """Train one run by the command line in this process; its scores, thresholds, losses and metrics."""
    from ssmlbench.cli import app

    options = RUNS[name].replace(BERT, str(bert))
    words = f"run {options} {SHORT} --plugin {DATA} --results {folder} --quiet"
    words += " --device cpu --threads 1 --jobs 1 --workers 0"
    said = CliRunner().invoke(app, words.split(), catch_exceptions=False)
    if said.exit_code:
        raise AssertionError(said.output)
    (result_file,) = folder.rglob("result.json")
    result = json.loads(result_file.read_text())
    stored = load_file(result_file.with_name("scores.safetensors"))
    return {
        "options": RUNS[name],
        "steps": result["steps"],
        "scores": stored["scores"].tolist(),
        "thresholds": stored["thresholds"].tolist(),
        "metrics": {
            rule: {key: result["metrics"][rule]["default"][key] for key in METRIC_KEYS}
            for rule in RULE_NAMES
        },
    }


def rounded(value: Any) -> Any:
    """The same values with six decimals."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return round(value, 6) if isinstance(value, float) else value


def distance(a: Any, b: Any) -> float:
    """The largest difference between two tables' numbers; infinite where they have not one shape."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return max((distance(a[key], b[key]) for key in a), default=0.0)
    if isinstance(a, list) and isinstance(b, list):
        first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
        return float(np.abs(first - second).max()) if first.shape == second.shape else np.inf
    if isinstance(a, int | float) and isinstance(b, int | float):
        return 0.0 if np.isnan(a) and np.isnan(b) else abs(a - b)
    return 0.0 if a == b else np.inf


def main() -> None:
    """Train every golden run and write the table."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["SSMLBENCH_CACHE"] = str(Path(scratch) / "cache")
        bert = save_tiny_bert(Path(scratch) / BERT)
        runs = {
            name: rounded(make(name, bert, Path(scratch) / str(i))) for i, name in enumerate(RUNS)
        }
    lines = [f" {json.dumps(name)}: {json.dumps(run)}" for name, run in runs.items()]
    TABLE.write_text(
        f'{{"protocol": {PROTOCOL_VERSION}, "runs": {{\n' + ",\n".join(lines) + "\n}}\n"
    )


if __name__ == "__main__":
    main()
