"""What a method's step costs beside the bare forward + backward + optimiser step of the same rows.

The bare step is one pass of the method's own network, head included, over the very rows and views of
the method's step as one batch, a loss of one line, and one AdamW over all weights. It sees the network
as the method keeps it: where role_li has frozen the encoder, the bare step is a frozen one. All else is
charged to the method: its loss and pseudo-labels, further passes and optimisers, the schedule and the
EMA. For a method that asks an averaged network about views of its own (d2l_mat), a second figure has
that pass in the bare step too; the first one counts.

    python benchmarks/bench_steps.py [--on small-cnn|vectors|resnet18] [METHOD …]

Both kinds of step alternate in one process, on one thread, by the processor's clock, and the figures
are medians over neighbours: a machine that is busy with other things slows both alike.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from ssmlbench.checks.methods import spec_for
from ssmlbench.inputs.encoders import Vector
from ssmlbench.inputs.splits import Inputs
from ssmlbench.inputs.views import vector_views
from ssmlbench.kit.gradient_step import GradientStep
from ssmlbench.kit.method import Method
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.observation import observe
from ssmlbench.protocol.sealed import SealedTruth
from ssmlbench.runs.execute import build_encoder, build_method, open_task
from ssmlbench.runs.resolve import resolve
from ssmlbench.training.checkpoint import Checkpoint
from ssmlbench.training.device import make_repeatable
from ssmlbench.training.run_data import RunData, build_run_data, input_loader
from ssmlbench.training.trainer import Trainer

STEPS = {"small-cnn": 60, "vectors": 200, "resnet18": 8}
BACKBONES = {
    "small-cnn": {},
    "resnet18": {"backbone": "resnet18", "weights": "none", "image_size": 64},
}
# Soft labels are there, large losses are doubted, and the encoder of role_li is still frozen.
EPOCHS, MEASURED = 10, 6
ROWS, WIDTH, LABELS = 2000, 384, 50  # of the vectors: a sentence encoder's features


def on_images(name: str, plugins: Plugins, folder: Path, encoder: str) -> Trainer:
    """The embedded data set, every weight of the encoder trained."""
    spec = resolve(
        plugins,
        {},
        method=name,
        dataset="multidigits",
        pi=0.05,
        epochs=EPOCHS,
        **BACKBONES[encoder],
    )
    task = open_task(spec, plugins)
    cpu = torch.device("cpu")
    inputs = input_loader(spec, plugins, task, cpu)
    material, _ = build_run_data(spec, task, inputs)
    method, built = build_method(spec, plugins, task), build_encoder(spec, plugins, material)
    return Trainer(spec, method, built, material, cpu, Checkpoint(folder / "none"))


def on_vectors(cls: type[Method], folder: Path) -> Trainer:
    """A head on fixed features: the smallest step there is, where every small operation shows."""
    random = np.random.default_rng(0)
    truth = (random.random((ROWS, LABELS)) < 0.06).astype(np.int8)
    values = torch.from_numpy(random.normal(size=(ROWS, WIDTH))).float()
    inputs = Inputs(values, vector_views())
    spec = spec_for(
        cls, "semi", epochs=EPOCHS, warmup_epochs=1, batch_size=64, labelled_batch_size=32, pi=0.1
    )
    material = RunData(inputs, inputs, observe(truth, spec), SealedTruth(truth), truth)
    method = cls(cls.Config(), LABELS)
    checkpoint = Checkpoint(folder / "none")
    return Trainer(spec, method, Vector(values[0]), material, torch.device("cpu"), checkpoint)


def measure(trainer: Trainer, steps: int) -> dict[str, float]:
    """Medians: a bare step's milliseconds, and ratios to it; "averaged" with the EMA pass in it."""
    method = trainer.method
    method.setup(trainer.pools)
    trainer.epoch = MEASURED - 1
    trainer.pools.epoch = MEASURED
    trainer._start_phase()
    with torch.no_grad():
        method.start_epoch(trainer.pools)
    trainer.pools.forget()
    plan = trainer._plan()
    trainer.network.train()
    parameters = [p for group in trainer.optimiser.param_groups for p in group["params"]]
    method.start_steps(trainer.network)
    bare_optimiser = torch.optim.AdamW(trainer.network.parameters(), lr=1e-3, fused=True)
    found: dict[str, list[float]] = {"bare": [], "step": [], "views": [], "averaged": []}
    clock = time.process_time
    for i in range(steps):
        start = clock()
        step = i % len(plan)
        seen = trainer._step_inputs(plan, step)
        labelled, unlabelled = trainer._batches(plan.positions(step), seen)
        views = clock() - start
        inputs = torch.cat(list(labelled.forward._inputs.values()))

        start = clock()
        trainer.network(inputs)["logits"].square().mean().backward()
        bare_optimiser.step()
        bare_optimiser.zero_grad(set_to_none=True)
        bare = clock() - start

        averaged = 0.0
        if others := list(labelled.ema_forward._inputs.values()):
            together = torch.cat(others)
            start = clock()
            trainer._run_ema(together)
            averaged = clock() - start

        start = clock()
        update = GradientStep(trainer.network, parameters, forward=labelled.forward)
        method.step(labelled, unlabelled, update)
        trainer._apply(update)
        whole = clock() - start
        found["bare"].append(1000 * bare)
        found["step"].append(whole / bare)
        found["views"].append(views / bare)
        found["averaged"].append(whole / (bare + averaged))
    skipped = min(5, steps // 4)
    return {key: statistics.median(values[skipped:]) for key, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--on", choices=STEPS, action="append")
    chosen = parser.parse_args()
    make_repeatable(1)
    plugins = Plugins()
    names = chosen.methods or [n for n in plugins.methods if "semi" in plugins.methods[n].regimes]
    with tempfile.TemporaryDirectory() as folder:
        for on in chosen.on or ["small-cnn", "vectors"]:
            print(f"{on:12}  bare ms   step/bare   views/bare   (bar: ≤ 1.10, flatmatch ≤ 2.2)")
            for name in names:
                if on == "vectors":
                    trainer = on_vectors(plugins.methods[name], Path(folder))
                else:
                    trainer = on_images(name, plugins, Path(folder), on)
                found = measure(trainer, STEPS[on])
                note = (
                    f"   {found['averaged']:.2f} with its averaged network's pass in the bare step"
                )
                print(
                    f"{name:12} {found['bare']:8.2f} {found['step']:10.2f} {found['views']:12.2f}"
                    + (note if trainer.method.unlabelled_ema_views else ""),
                    flush=True,
                )


if __name__ == "__main__":
    main()
