"""Heads on fixed features: the most that a GPU can save of a step, measured without one.

A step is Python and calls of kernels (overhead), and arithmetic. A GPU takes the arithmetic over, at
best in no time, and the overhead stays on the core that serves it. So a step on real sizes over the
same step with next to no arithmetic is the most by which a GPU can speed one run up; if there are
more cores than that to a GPU, runs on the cores finish sooner. `grid/resources.py` has the rule.
"""

from __future__ import annotations

import time

import torch

from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs.cached import CachedInputs
from ssmlbench.inputs.encoders import Vector
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.judge import Judge
from ssmlbench.training.repeatable import make_repeatable
from ssmlbench.training.run_data import RunData
from ssmlbench.training.trainer import Trainer, TrainingContext

ROWS, LABELS, STEPS = 4_000, 80, 100
METHODS = ("bce", "cap", "bbam", "softmatch")
WIDTHS = (384, 768, 2048)


def step_milliseconds(plugins: Plugins, method: str, width: int, labels: int, batch: int) -> float:
    """One step of the main phase by the recipe for fixed features: the best of three epochs."""
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(ROWS, width, generator=draw)
    truth = (torch.rand(ROWS, labels, generator=draw) < 0.2).to(torch.int8).numpy()
    spec = RunSpec(
        method=method,
        dataset="made-up",
        pi=0.2,
        freeze=True,
        strong_views=1,
        recipe="features",
        projection="residual" if plugins.methods[method].head == "cosine" else "skip",
        input_dropout=0.5,
        hidden_dropout=0.5,
        batch_size=2 * batch,
        labelled_batch_size=batch,
        epoch_steps=STEPS,
        warmup_epochs=0,
    )
    half = features.half()
    train = CachedInputs({"plain": half, "weak": half, "strong": half}, 1)
    test = CachedInputs({"plain": half[:100]}, 1)
    run_data = RunData.beside(Judge.of(spec, truth, truth[:100]), train, test)
    cls = plugins.methods[method]
    made = cls(cls.Config(), labels)
    context = TrainingContext(torch.device("cpu"))
    trainer = Trainer(spec, made, Vector(features[0]), run_data, context)
    made.setup(trainer.pools)
    trainer.start_phase(0)
    trainer.start_epoch(0)
    best = float("inf")
    for _ in range(3):
        plan = trainer.batching.plan(0, False)
        began = time.process_time()
        for labelled, unlabelled in trainer.batching.batches(plan, 0):
            update = trainer.gradient_step(labelled)
            trainer.method.step(labelled, unlabelled, update)
            trainer.apply(update)
        best = min(best, time.process_time() - began)
    return 1000 * best / STEPS


def main() -> None:
    make_repeatable(1)
    plugins = Plugins()
    print(
        f"a step of 32 + 64 rows, {LABELS} labels, one core; overhead: 1 + 2 rows, 4 features, 2 labels"
    )
    print("method      width   step ms   overhead ms   at most × on a GPU")
    for method in METHODS:
        overhead = step_milliseconds(plugins, method, 4, 2, 1)
        for width in WIDTHS:
            step = step_milliseconds(plugins, method, width, LABELS, 32)
            print(
                f"{method:10} {width:6} {step:9.2f} {overhead:13.2f} {step / overhead:20.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
