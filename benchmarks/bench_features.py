"""Training on cached features: against encoding anew in every epoch, and against the bare step.

The second part is the size of AAPD, 54,000 rows of 384 features, in memory and made up. Times are
of one core's own work, whatever else the machine does.
"""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import torch
from torch import Tensor

from ssmlbench.core.spec import RunSpec
from ssmlbench.data import Task
from ssmlbench.inputs.cached import CachedInputs
from ssmlbench.inputs.encoders import Encoder, EncoderOptions, Vector
from ssmlbench.inputs.loader import SplitLoader
from ssmlbench.kit.heads import Network, build_projection
from ssmlbench.kit.losses import bce
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.judge import Judge
from ssmlbench.runs.execute import open_task
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.train import build_learner, encoder_class
from ssmlbench.training.repeatable import make_repeatable
from ssmlbench.training.run_data import RunData, load_run_data
from ssmlbench.training.trainer import Trainer, TrainingContext

CPU = torch.device("cpu")
DATASET = "multidigits"
ROWS, WIDTH, LABELS = 54_000, 384, 54
EPOCHS = {"warm-up": 12, "semi": 28}


class Anew(Encoder):
    """An encoder that is run in every step and never trained."""

    def __init__(self, encoder: Encoder):
        super().__init__(torch.empty(0))
        self.inside = [encoder.eval().requires_grad_(False)]  # a list: no part of the network
        self.features = encoder.features

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            return self.inside[0](inputs)


def epoch_seconds(trainer: Trainer, epoch: int) -> float:
    """The time of this epoch, the first of its phase."""
    trainer.start_phase(epoch)
    began = time.process_time()
    trainer.train_epoch(epoch)
    return time.process_time() - began


def encoding_anew(plugins: Plugins) -> None:
    spec = resolve(
        plugins,
        {},
        method="cap",
        dataset=DATASET,
        pi=0.05,
        backbone="mobilenet_v3_small",
        weights="none",
        image_size=32,
        freeze=True,
        strong_views=1,
    )
    spec = dataclasses.replace(spec, scaling="none")
    task: Task = open_task(spec, plugins)
    cls = encoder_class(spec, plugins)
    loader = SplitLoader(spec, cls, task, CPU)
    seconds = {}
    for name, load in (("cached", loader.features), ("anew", loader.raw)):
        judge = Judge.of(spec, task.truth("train"), task.truth("test"))
        run_data = load_run_data(spec, judge.visible(), judge, load)
        example = run_data.train.view(np.zeros(1, dtype=np.int64), "plain", torch.Generator())[0]
        encoder = (
            Vector(example) if name == "cached" else Anew(cls(example, EncoderOptions.of(spec)))
        )
        method = build_learner(spec, plugins, task.label_count)
        trainer = Trainer(spec, method, encoder, run_data, TrainingContext(CPU))
        method.setup(trainer.pools)
        seconds[name] = epoch_seconds(trainer, spec.warmup_epochs)
    print(
        f"one epoch of cap, {len(task.truth('train')):,} images of 32 px, mobilenet_v3_small: "
        f"encoding anew / cached = {seconds['anew'] / seconds['cached']:.0f}"
    )


def frozen_trainer(method: str, plugins: Plugins) -> Trainer:
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(ROWS, WIDTH, generator=draw)
    mixing = torch.randn(WIDTH, LABELS, generator=draw) / WIDTH**0.5
    truth = (features @ mixing > 1.7).to(torch.int8).numpy()
    spec = RunSpec(
        method=method, dataset="made-up", pi=0.05, projection="mlp", freeze=True, strong_views=1
    )
    half = features.half()
    train = CachedInputs({"plain": half, "weak": half, "strong": half}, 1)
    test = CachedInputs({"plain": half[:1000]}, 1)
    run_data = RunData.beside(Judge.of(spec, truth, truth[:1000]), train, test)
    cls = plugins.methods[method]
    made = cls(cls.Config(), LABELS)
    trainer = Trainer(spec, made, Vector(features[0]), run_data, TrainingContext(CPU))
    made.setup(trainer.pools)
    return trainer


def bare_seconds(rows: int, steps: int) -> float:
    """Forward, backward and AdamW of the projection and a linear head on the same rows."""
    projection, width = build_projection("mlp", WIDTH)
    network = Network(torch.nn.Identity(), projection, torch.nn.Linear(width, LABELS))
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)
    inputs, targets = torch.randn(rows, WIDTH), torch.rand(rows, LABELS).round()
    began = time.process_time()
    for _ in range(steps):
        bce(network(inputs)["logits"], targets).mean().backward()
        optimiser.step()
        optimiser.zero_grad()
    return time.process_time() - began


def paper_length(plugins: Plugins) -> None:
    print(f"{ROWS:,} × {WIDTH} cached features, 12 + 28 epochs on one core (from an epoch of each)")
    print("method   minutes   semi epoch / its bare steps")
    for method in ("bce", "cap", "bbam"):
        trainer = frozen_trainer(method, plugins)
        mixed = bool(trainer.method.unlabelled_views)
        steps = trainer.batching.steps_an_epoch(warming_up=False)
        rows = trainer.spec.batch_size + trainer.spec.labelled_batch_size * mixed
        warm = epoch_seconds(trainer, 0)
        semi = epoch_seconds(trainer, trainer.warmup_epochs)
        bare = bare_seconds(rows, steps)
        total = EPOCHS["warm-up"] * warm + EPOCHS["semi"] * semi
        print(f"{method:6} {total / 60:9.1f} {semi / bare:10.2f}", flush=True)


def main() -> None:
    make_repeatable(1)
    plugins = Plugins()
    encoding_anew(plugins)
    paper_length(plugins)


if __name__ == "__main__":
    main()
