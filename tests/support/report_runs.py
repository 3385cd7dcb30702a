"""A small results folder for the report's tests: two data sets, three πs, and names that mean harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ssmlbench.core.spec import RunSpec
from ssmlbench.protocol.decisions import RULES
from ssmlbench.protocol.metrics import METRICS

SCRIPT = "<script>alert(1)"  # a name has no slash
IMAGE = "\"'><img src=x onerror=alert(2)>"
CLOSING = "</script></style></title><b>& $\\frac{"
HOSTILE = (SCRIPT, IMAGE, CLOSING)
METHODS = {"bce": 0.50, "cap": 0.60, SCRIPT: 0.40, "long-" * 60: 0.30}
DATASETS = ("toy", IMAGE)
PIS = (0.05, 0.1, 0.2)
HISTORY = """epoch,phase,steps,lr,seconds,samples_per_second,peak_memory_mb,loss_labelled,pseudo_precision
1,warm-up,10,0.1,1,1,1,{a},
2,warm-up,20,0.1,1,1,1,{b},
3,semi,30,0.1,1,1,1,{b},0.5
4,semi,40,0.1,1,1,1,0.1,{a}
"""


def write_run(folder: Path, spec: RunSpec, value: float, history: str = "") -> None:
    """A finished run: scores `value`, losses 1 - `value`. Its folder's name owes nothing to its spec."""
    five = {key: value if metric.higher_is_better else 1 - value for key, metric in METRICS.items()}
    result = {
        "spec": spec.as_dict(),
        "metrics": {d: {"default": five, "released": five} for d in RULES},
        "cost": {"seconds": 9.0, "seconds_per_epoch": 10 * value, "peak_memory_mb": 300.0},
        "made_with": {
            "torch": "2.0",
            "device": CLOSING,
            "finished": "2026-01-01T00:00:00.000+00:00",
        },
        "data": {"rows": {"train": 8, "test": 4}, "labels": 3},
    }
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(result))
    if history:
        (folder / "history.csv").write_text(history)


def write_results(root: Path) -> Path:
    """48 runs; those of `toy` at π = 0.05 have histories."""
    number = 0
    for dataset in DATASETS:
        for pi in PIS:
            for method, value in METHODS.items():
                for seed in (0, 1):
                    more: dict[str, Any] = {}
                    if method == "cap":
                        more = {"config": {"loss": CLOSING}, "changed": ("loss",)}
                    spec = RunSpec(
                        method, dataset, pi=pi, seed=seed, code="c0de", data="da7a", **more
                    )
                    drawn = dataset == "toy" and pi == 0.05
                    history = HISTORY.format(a=0.8 + 0.1 * seed, b=0.4) if drawn else ""
                    score = value + pi + 0.01 * seed
                    write_run(root / "d" / "r" / "m" / str(number), spec, score, history)
                    number += 1
    return root
