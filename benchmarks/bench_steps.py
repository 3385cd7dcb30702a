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
import time

import numpy as np
import torch

from ssmlbench.checks.toy import spec_for
from ssmlbench.inputs.encoders import Vector
from ssmlbench.inputs.loader import SplitLoader
from ssmlbench.inputs.splits import Inputs
from ssmlbench.inputs.views import vector_views
from ssmlbench.kit.method import Method
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.judge import Judge
from ssmlbench.runs.execute import open_task
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.train import build_encoder, build_learner, encoder_class
from ssmlbench.training.repeatable import make_repeatable
from ssmlbench.training.run_data import RunData, load_run_data
from ssmlbench.training.trainer import Trainer, TrainingContext

STEPS = {"small-cnn": 60, "vectors": 200, "resnet18": 8}
BACKBONES = {
    "small-cnn": {},
    "resnet18": {"backbone": "resnet18", "weights": "none", "image_size": 64},
}
# Soft labels are there, large losses are doubted, and the encoder of role_li is still frozen.
EPOCHS, MEASURED = 10, 6
ROWS, WIDTH, LABELS = 2000, 384, 50  # of the vectors: a sentence encoder's features


def on_images(name: str, plugins: Plugins, encoder: str) -> Trainer:
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
    cls, context = encoder_class(spec, plugins), TrainingContext()
    loader = SplitLoader(spec, cls, task, context.device)
    judge = Judge.of(spec, task.truth("train"), task.truth("test"))
    run_data = load_run_data(spec, judge.visible(), judge, loader.load)
    method, built = (
        build_learner(spec, plugins, task.label_count),
        build_encoder(spec, cls, run_data),
    )
    return Trainer(spec, method, built, run_data, context)


def on_vectors(cls: type[Method]) -> Trainer:
    """A head on fixed features: the smallest step there is, where every small operation shows."""
    random = np.random.default_rng(0)
    truth = (random.random((ROWS, LABELS)) < 0.06).astype(np.int8)
    values = torch.from_numpy(random.normal(size=(ROWS, WIDTH))).float()
    inputs = Inputs(values, vector_views())
    spec = spec_for(
        cls, "semi", epochs=EPOCHS, warmup_epochs=1, batch_size=64, labelled_batch_size=32, pi=0.1
    )
    run_data = RunData.beside(Judge.of(spec, truth, truth), inputs, inputs)
    method = cls(cls.Config(), LABELS)
    return Trainer(spec, method, Vector(values[0]), run_data, TrainingContext())


def measure(trainer: Trainer, steps: int) -> dict[str, float]:
    """Medians: a bare step's milliseconds, and ratios to it; "averaged" with the EMA pass in it."""
    method, network, batching = trainer.method, trainer.model.network, trainer.batching
    method.setup(trainer.pools)
    epoch = MEASURED - 1
    trainer.start_phase(epoch)
    trainer.start_epoch(epoch)
    plan = batching.plan(epoch, trainer.warming_up)
    bare_optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)
    found: dict[str, list[float]] = {"bare": [], "step": [], "views": [], "averaged": []}
    clock = time.process_time
    for i in range(steps):
        start = clock()
        step = i % len(plan)
        inputs = batching.transfer.moved(batching.step_inputs(plan, step))
        labelled, unlabelled = batching.step_batches(inputs)
        views = clock() - start
        of_network, of_averaged, _ = inputs

        seen = torch.cat(list(of_network.values()))
        start = clock()
        network(seen)["logits"].square().mean().backward()
        bare_optimiser.step()
        bare_optimiser.zero_grad(set_to_none=True)
        bare = clock() - start

        averaged = 0.0
        if of_averaged:
            seen = torch.cat(list(of_averaged.values()))
            start = clock()
            trainer.model.run_averaged(seen)
            averaged = clock() - start

        start = clock()
        update = trainer.gradient_step(labelled)
        method.step(labelled, unlabelled, update)
        trainer.apply(update)
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
    trained = [n for n in plugins.methods if issubclass(plugins.methods[n], Method)]
    names = chosen.methods or [n for n in trained if "semi" in plugins.methods[n].regimes]
    for on in chosen.on or ["small-cnn", "vectors"]:
        print(f"{on:12}  bare ms   step/bare   views/bare   (bar: ≤ 1.10, flatmatch ≤ 2.2)")
        for name in names:
            on_rows = on == "vectors"
            trainer = on_vectors(plugins.methods[name]) if on_rows else on_images(name, plugins, on)
            found = measure(trainer, STEPS[on])
            note = f"   {found['averaged']:.2f} with its averaged network's pass in the bare step"
            print(
                f"{name:12} {found['bare']:8.2f} {found['step']:10.2f} {found['views']:12.2f}"
                + (note if trainer.method.unlabelled_ema_views else ""),
                flush=True,
            )


if __name__ == "__main__":
    main()
