"""Large label spaces: what the start of an epoch, a step and memory cost at 20,000 rows × 3,000 labels.

Every method and estimator is within the bars or refuses the number of labels at once. `--labels`,
`--rows` and `--method` measure something else.
"""

from __future__ import annotations

import argparse
import os
import resource
import time

import numpy as np
import torch

from ssmlbench.checks.toy import spec_for
from ssmlbench.core.errors import UserError
from ssmlbench.core.freed_memory import reuse_small_blocks
from ssmlbench.inputs.encoders import Vector
from ssmlbench.inputs.splits import Inputs
from ssmlbench.inputs.views import vector_views
from ssmlbench.kit.estimator import Estimator, FeaturePool
from ssmlbench.kit.method import Method
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.judge import Judge
from ssmlbench.protocol.observation import observe
from ssmlbench.protocol.sealed import SealedTruth
from ssmlbench.training.estimation import scored_at_a_time
from ssmlbench.training.run_data import RunData
from ssmlbench.training.trainer import Trainer, TrainingContext

WIDTH, STEPS = 256, 24
BARS = "bars: 10 s for an epoch, its start and its steps; 2 GB"


def measure(cls: type[Method], rows: int, labels: int) -> str:
    """One method's line: seconds of an epoch's start and of its steps, and peak memory in GB."""
    random = np.random.default_rng(0)
    truth = (random.random((rows, labels), dtype=np.float32) < 0.01).astype(np.int8)
    inputs = Inputs(torch.randn(rows, WIDTH), vector_views())
    regime = "semi" if "semi" in cls.regimes else min(cls.regimes)
    spec = spec_for(cls, regime, batch_size=64, labelled_batch_size=32, pi=0.1, epochs=3)
    before = peak()
    try:
        method = cls(cls.Config(), labels)
        judge = Judge(spec, observe(truth, spec), SealedTruth(truth), truth)
        run_data = RunData.beside(judge, inputs, inputs)
        trainer = Trainer(spec, method, Vector(inputs.values[0]), run_data, TrainingContext())
    except UserError as refusal:
        return f"refused: {refusal}"
    method.setup(trainer.pools)
    trainer.start_phase(spec.epochs - 1)
    trainer.progress.epoch = trainer.pools.epoch = spec.epochs
    began = time.process_time()
    with torch.no_grad():
        method.start_epoch(trainer.pools)
    trainer.pools.forget()
    started = time.process_time() - began
    trainer.model.network.train()
    method.train()
    method.start_steps(trainer.model.network)
    plan = trainer.batching.plan(spec.epochs - 1, False)
    batches = trainer.batching.batches(plan, 0)
    began = time.process_time()
    for _ in range(STEPS):
        labelled, unlabelled = next(batches)
        update = trainer.gradient_step(labelled)
        method.step(labelled, unlabelled, update)
        trainer.apply(update)
    steps = (time.process_time() - began) / STEPS * len(plan)
    return f"start {started:5.1f} s, {len(plan)} steps {steps:6.1f} s, {peak() - before:4.2f} GB"


def measure_estimator(cls: type[Estimator], rows: int, labels: int) -> str:
    """One estimator's line: seconds of fitting and of scoring all rows, and peak memory in GB."""
    random, labelled = np.random.default_rng(0), rows // 10
    most = cls.most_labels_of(cls.Config(), labelled, rows - labelled)
    if most is not None and labels > most:
        return f"refused: it can do {most:,} labels with so many rows"
    truth = (random.random((rows, labels), dtype=np.float32) < 0.01).astype(np.int8)
    truth[labelled:] = -1
    features = random.standard_normal((rows, WIDTH), dtype=np.float32)
    prior = truth[:labelled].mean(axis=0)
    used = rows if cls.uses == "both pools" else labelled
    pools = [
        FeaturePool(features[part], truth[part], prior)
        for part in (slice(0, labelled), slice(labelled, used))
    ]
    before, estimator = peak(), cls(cls.Config(), labels, 0)
    began = time.process_time()
    estimator.fit(*pools)
    fitted = time.process_time() - began
    chunk = scored_at_a_time(labels)
    for start in range(0, rows, chunk):
        estimator.scores(features[start : start + chunk])
    scored = time.process_time() - began - fitted
    return f"fit {fitted:5.1f} s, scores {scored:5.1f} s, {peak() - before:4.2f} GB"


def peak() -> float:
    """GB: the process's high-water mark."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--labels", type=int, default=3_000)
    parser.add_argument("--method", nargs="*")
    options, _ = parser.parse_known_args()
    torch.set_num_threads(1)
    reuse_small_blocks()  # as training does
    methods = Plugins().methods
    print(f"{options.rows:,} rows × {options.labels:,} labels; {BARS}", flush=True)
    for name in options.method or methods:
        child = os.fork()  # a process each: the high-water mark never falls
        if not child:
            cls = methods[name]
            measured = measure if issubclass(cls, Method) else measure_estimator
            print(f"{name:20} {measured(cls, options.rows, options.labels)}", flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
