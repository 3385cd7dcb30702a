"""What a method's step costs beside the bare forward + backward + optimiser step of the same rows.

Both kinds of step alternate in one process, so a noisy machine slows both alike.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import torch

from ssmlbench.checkpoint import Checkpoint
from ssmlbench.device import make_repeatable
from ssmlbench.registry import Plugins
from ssmlbench.runner import (
    Place,
    build_encoder,
    build_method,
    gather,
    input_loader,
    open_task,
    resolve,
)
from ssmlbench.trainer import Trainer
from ssmlbench.update import Update

STEPS = 60


def measure(name: str, plugins: Plugins, folder: Path) -> dict[str, float]:
    """Median milliseconds of a bare step, a method's step, and its views."""
    spec = resolve(plugins, {}, method=name, dataset="multidigits", pi=0.05, epochs=2)
    task = open_task(spec, plugins)
    cpu = torch.device("cpu")
    inputs = input_loader(spec, plugins, task, Place(folder, "cpu"), cpu, lambda event: None)
    material, _ = gather(spec, task, inputs)
    method, encoder = build_method(spec, plugins, task), build_encoder(spec, plugins, material)
    trainer = Trainer(spec, method, encoder, material, cpu, Checkpoint(folder / "none"))
    method.setup(trainer.pools)
    trainer.epoch = trainer.warmup_epochs
    trainer.pools.epoch = trainer.epoch + 1
    trainer._start_phase()
    with torch.no_grad():
        method.start_epoch(trainer.pools)
    trainer.pools.forget()
    plan = trainer._plan()
    trainer.network.train()
    parameters = [p for group in trainer.optimiser.param_groups for p in group["params"]]
    update = Update(trainer.network, parameters, None)
    bare_optimiser = torch.optim.AdamW(trainer.network.parameters(), lr=1e-3, fused=True)
    times: dict[str, list[float]] = {"views": [], "bare": [], "step": []}
    for i in range(STEPS):
        began = time.perf_counter()
        step = i % len(plan)
        seen = trainer._step_inputs(plan, step)
        labelled, unlabelled = trainer._batches(plan.positions(step), seen)
        times["views"].append(time.perf_counter() - began)
        inputs = torch.cat(list(labelled.forward._inputs.values()))

        began = time.perf_counter()
        trainer.network(inputs)["logits"].square().mean().backward()
        bare_optimiser.step()
        bare_optimiser.zero_grad(set_to_none=True)
        times["bare"].append(time.perf_counter() - began)

        began = time.perf_counter()
        update.forget = labelled.forward.forget
        method.step(labelled, unlabelled, update)
        trainer.optimiser.step()
        trainer.optimiser.zero_grad(set_to_none=True)
        trainer.ema.update()
        times["step"].append(time.perf_counter() - began)
    return {key: 1000 * statistics.median(values[5:]) for key, values in times.items()}


def main() -> None:
    make_repeatable(1)
    plugins = Plugins()
    print(
        "method        bare ms   step/bare   views/bare   (bar: step/bare ≤ 1.10, flatmatch ≤ 2.2)"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in plugins.methods:
            if "semi" not in plugins.methods[name].regimes:
                continue
            found = measure(name, plugins, Path(folder))
            print(
                f"{name:12} {found['bare']:8.2f} {found['step'] / found['bare']:10.2f} "
                f"{found['views'] / found['bare']:12.2f}"
            )


if __name__ == "__main__":
    main()
