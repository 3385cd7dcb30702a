"""The peak memory of one side of a run on many rows: `python -m tests.support.large_runs SIDE METHOD ROWS`.

SIDE is `training`, with vectors in a memory map and a judge that keeps nothing, or `judge`. The peak is
that of memory which is not a file's, in bytes. A run of its own process: earlier peaks would hide it.

`python -m tests.support.large_runs table ROWS ROWS [METHOD …]` measures every method, or some, at two
sizes in a process each, and prints what a million rows take by the line through both, and seconds.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from ssmlbench.checks.toy import spec_for
from ssmlbench.core.errors import UserError
from ssmlbench.inputs.encoders import Vector
from ssmlbench.inputs.mapped import MappedRows, mapped_array
from ssmlbench.inputs.scaling import Scale
from ssmlbench.inputs.splits import StoredInputs
from ssmlbench.inputs.views import vector_views
from ssmlbench.kit.estimator import Estimator
from ssmlbench.kit.method import Method
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.judge import Judge
from ssmlbench.training.estimation import run_estimator
from ssmlbench.training.run_data import RunData
from ssmlbench.training.trainer import Trainer, TrainingContext

LABELS, WIDTH, TEST_ROWS = 100, 64, 1000


class NoJudge:
    """A judge that keeps nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *handed_in: None


class Peak:
    """The most memory that the process had beside mapped files, in bytes."""

    def __init__(self) -> None:
        self.bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        with Path("/proc/self/statm").open("rb", buffering=0) as opened:
            while not self._ended.is_set():
                opened.seek(0)
                _, resident, shared, *_ = opened.read().split()
                self.bytes = max(self.bytes, (int(resident) - int(shared)) * page)
                time.sleep(0.002)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()


def truth_of(rows: int) -> np.ndarray[Any, np.dtype[np.int8]]:
    """Rows × LABELS, three positives a row."""
    truth = np.zeros((rows, LABELS), dtype=np.int8)
    for column in np.random.default_rng(0).integers(0, LABELS, (3, rows)):
        truth[np.arange(rows), column] = 1
    return truth


def mapped_inputs(file: Path, rows: int) -> StoredInputs:
    """Random vectors in a file."""
    vectors = np.lib.format.open_memmap(file, "w+", np.float32, (rows, WIDTH))
    for start in range(0, rows, 10_000):
        part = vectors[start : start + 10_000]
        part[...] = np.random.default_rng(start).normal(size=part.shape)
    del vectors
    stored = MappedRows([mapped_array(file)])
    inputs = StoredInputs(rows, stored.take, vector_views(), on_the_fly=False)
    return inputs.scaled(Scale.of(inputs))


def training(method: str, rows: int, folder: Path) -> int:
    """The peak of the process that trains."""
    cls = Plugins().methods[method]
    fields: dict[str, Any] = {"batch_size": 64, "labelled_batch_size": 32, "pi": 0.1}
    learnt = cls if issubclass(cls, Method) else Plugins().methods["bce"]
    spec = spec_for(learnt, "semi", epochs=3, warmup_epochs=1, epoch_steps=2, **fields)
    observation = Judge.of(spec, truth_of(rows), truth_of(TEST_ROWS)).visible()
    train, test = (mapped_inputs(folder / f"{n}.npy", n) for n in (rows, TEST_ROWS))
    with Peak() as peak:
        run_data = RunData(train, test, observation, NoJudge())
        if issubclass(cls, Estimator):
            run_estimator(spec, cls(cls.Config(), LABELS, 0), run_data)
        else:
            learner = cls(cls.Config(**spec.config), LABELS)
            Trainer(spec, learner, Vector(torch.zeros(WIDTH)), run_data, TrainingContext()).train()
    return peak.bytes


def judge(rows: int) -> int:
    """The peak of the process that judges, of a method with pseudo-labels."""
    spec = spec_for(Plugins().methods["cap"], "semi", pi=0.1, epochs=3)
    with Peak() as peak:
        judge = Judge.of(spec, truth_of(rows), truth_of(TEST_ROWS))
        judge.visible()
        unlabelled = len(judge.observation.unlabelled)
        for epoch in (1, 2):
            masks = (np.zeros((unlabelled, LABELS), dtype=bool) for _ in range(2))
            judge.grade(epoch, *masks)
        scores = np.full((rows, LABELS), 0.5, dtype=np.float32)
        judge.hand_in(3, scores, scores[:TEST_ROWS])
        judge.label_counts()
        assert judge.observation.digest
    return peak.bytes


def table(sizes: list[int], methods: list[str]) -> None:
    """Print a line for each method: its peaks, and what follows for a million rows."""
    few, many = sizes
    for name in methods:
        measured = [in_a_process(name, rows) for rows in sizes]
        if any(isinstance(found, str) for found in measured):
            line = f"{name:22}{measured[-1]}"
        else:
            (peak, seconds), (higher, longer) = measured
            each, cost = (higher - peak) / (many - few), (longer - seconds) / (many - few)
            line = f"{name:22}{peak / 1e9:6.2f}{higher / 1e9:6.2f} GB; a million rows:"
            line += f"{(peak + each * (1_000_000 - few)) / 2**30:6.2f} GiB"
            line += (
                f"; {seconds:.1f} and {longer:.1f} s, {cost * 1e6:.0f} s more for a million rows"
            )
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def in_a_process(method: str, rows: int) -> tuple[int, float] | str:
    """The peak and the CPU seconds of training in a child, which has imported everything; or an error."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                peak = training(method, rows, Path(scratch))
                said = f"{peak} {time.process_time()}"
            except UserError as error:
                said = f"refused: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    words = said.split()
    return (
        said or "failed"
        if not words or words[0] == "refused:"
        else (int(words[0]), float(words[1]))
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "table":
        table([int(rows) for rows in sys.argv[2:4]], sys.argv[4:] or sorted(Plugins().methods))
        sys.exit()
    side, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with tempfile.TemporaryDirectory() as scratch:
        found = training(name, count, Path(scratch)) if side == "training" else judge(count)
    sys.stdout.write(f"{found}\n")
