"""Compares one run in two processes with the same run in one, started through the command line."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ssmlbench.checks.gpu.page import Differs, Skipped
from ssmlbench.checks.gpu.subject import Subject

TOLERANCE_OF_TWO = 0.01
"""The largest difference of scores of `bce` after 20 steps of the small CNN; pseudo-labels increase it."""
LONGEST_RUN = 900
"""Seconds after which a command counts as hanging."""


def check_two_processes(subject: Subject) -> str:
    """Compare the scores of `--gpus 2` with those of one process."""
    gpus = torch.cuda.device_count()
    if subject.device.type == "cuda" and gpus < 2:
        raise Skipped("this machine has one GPU")
    if subject.device.type not in ("cuda", "cpu"):
        raise Skipped(f"--gpus is for CUDA and the CPU, this is {subject.device.type}")
    device = subject.device.type
    with tempfile.TemporaryDirectory() as folder:
        one, two = (_scores(Path(folder) / str(n), device, n) for n in (1, 2))
    apart = float(np.abs(one - two).max())
    how = "2 GPUs" if device == "cuda" else "2 CPU processes"
    text = f"bce on multidigits, {how}: scores {apart:.1e} from one process"
    if not apart <= TOLERANCE_OF_TWO:
        raise Differs(f"{text}, more than {TOLERANCE_OF_TWO:g}")
    return text


def _scores(results: Path, device: str, processes: int) -> Any:
    from safetensors.numpy import load_file

    words = "run --method bce --dataset multidigits --pi 0.1 --epochs 2 --warmup-epochs 1 --quiet"
    words += " --epoch-steps 10"  # later, differences of the last bits have grown in any two runs
    words += f" --precision float32 --no-keep-model --device {device} --gpus {processes}"
    command = [sys.executable, "-m", "ssmlbench", *words.split(), "--results", str(results)]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=LONGEST_RUN
        )
    except subprocess.TimeoutExpired:
        raise Differs(f"--gpus {processes} did not end in {LONGEST_RUN} s") from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Differs(f"--gpus {processes} failed: {last[-1] if last else done.returncode}")
    (file,) = results.glob("*/*/*/*/scores.safetensors")
    return load_file(file)["scores"]
