"""What a run that can continue costs: keeping its state in memory after every epoch, and writing it.

    python benchmarks/bench_checkpoints.py [METHOD …]

Shares of an epoch, by the processor's clock, on one thread. A state is kept after every epoch, and
written at most once a minute: the second figure counts where epochs take a minute or more, or with
SSMLBENCH_CHECKPOINT_SECONDS=0.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench_recording import on_images, on_vectors

from ssmlbench.plugins.loader import Plugins
from ssmlbench.training.checkpoint import Checkpoint
from ssmlbench.training.repeatable import make_repeatable
from ssmlbench.training.trainer import Trainer

EPOCHS, ROUNDS = 3, 5
BAR = 0.01


def costs(trainer: Trainer) -> tuple[float, float, float]:
    """Seconds of an epoch, of keeping its state and of writing it."""
    epochs, kept, written = [], [], []
    trainer.method.setup(trainer.pools)
    with tempfile.TemporaryDirectory() as folder:
        file = Checkpoint(Path(folder) / "checkpoint.safetensors")
        for epoch in range(trainer.warmup_epochs, trainer.warmup_epochs + EPOCHS):
            if epoch == trainer.warmup_epochs:
                trainer.start_phase(epoch)
            began = time.process_time()
            trainer.train_epoch(epoch)
            epochs.append(time.process_time() - began)
            for _ in range(ROUNDS):
                began = time.process_time()
                state = trainer._state.snapshot()
                kept.append(time.process_time() - began)
                began = time.process_time()
                file.publish(state)
                written.append(time.process_time() - began)
    epoch, keep, write = map(statistics.median, (epochs, kept, written))
    return epoch, keep, write


def main() -> None:
    make_repeatable(1)
    plugins = Plugins()
    print(f"share of an epoch    (bar: kept ≤ {BAR:.0%})")
    for name in sys.argv[1:] or ["bce", "cap", "bbam"]:
        for what, trainer in (
            ("small-cnn", on_images(name, plugins)),
            ("vectors", on_vectors(plugins.methods[name])),
        ):
            epoch, keep, write = costs(trainer)
            shares = f"kept {keep / epoch:6.2%}   written {write / epoch:6.2%}"
            print(f"{name:8} {what:10} {shares}   of {epoch:.2f} s", flush=True)


if __name__ == "__main__":
    main()
