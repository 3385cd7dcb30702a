"""What the record for analyses costs: its share of an epoch, by the processor's clock, on one thread.

    python benchmarks/bench_recording.py [METHOD …]

For methods that pass over the pool anyway the bar is 2 %; the others make a pass of their own every
few epochs, and the figure is the mean over all epochs. The judge's part is included: it is in this process.
"""

from __future__ import annotations

import sys
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

DATASET, EPOCHS = "multidigits", 20
ROWS, WIDTH, LABELS = 20_000, 384, 53  # a sentence encoder's features


def on_images(name: str, plugins: Plugins) -> Trainer:
    """The embedded data set, every weight of the small encoder trained."""
    chosen = {"method": name, "dataset": DATASET, "pi": 0.05, "epochs": EPOCHS}
    spec = resolve(plugins, {}, **chosen)
    task, cls = open_task(spec, plugins), encoder_class(spec, plugins)
    judge = Judge.of(spec, task.truth("train"), task.truth("test"))
    loader = SplitLoader(spec, cls, task, torch.device("cpu"))
    run_data = load_run_data(spec, judge.visible(), judge, loader.load)
    method, built = (
        build_learner(spec, plugins, task.label_count),
        build_encoder(spec, cls, run_data),
    )
    return Trainer(spec, method, built, run_data, TrainingContext())


def on_vectors(cls: type[Method]) -> Trainer:
    random = np.random.default_rng(0)
    truth = (random.random((ROWS, LABELS)) < 0.05).astype(np.int8)
    values = torch.from_numpy(random.normal(size=(ROWS, WIDTH))).float()
    train, test = Inputs(values, vector_views()), Inputs(values[:1000], vector_views())
    sizes = {"batch_size": 64, "labelled_batch_size": 32, "projection": "mlp"}
    spec = spec_for(cls, "semi", epochs=EPOCHS, warmup_epochs=6, pi=0.05, **sizes)
    run_data = RunData.beside(Judge.of(spec, truth, truth[:1000]), train, test)
    return Trainer(spec, cls(cls.Config(), LABELS), Vector(values[0]), run_data, TrainingContext())


def share(trainer: Trainer) -> float:
    """The processor time of all records as a part of that of training."""
    recorder, spent = trainer.evaluator.recorder, [0.0]

    def timed(function):  # type: ignore[no-untyped-def]
        def call(*arguments, **named):  # type: ignore[no-untyped-def]
            start = time.process_time()
            result = function(*arguments, **named)
            spent[0] += time.process_time() - start
            return result

        return call

    watch = recorder.watch

    def watched(*arguments: str):  # type: ignore[no-untyped-def]
        kept = watch(*arguments)
        return timed(kept) if kept else None

    recorder.record = timed(recorder.record)  # type: ignore[method-assign]
    recorder.watch = watched  # type: ignore[method-assign]
    start = time.process_time()
    trainer.train()
    return spent[0] / (time.process_time() - start - spent[0])


def main() -> None:
    make_repeatable(1)
    plugins = Plugins()
    print("share of an epoch that the record takes    (bar: cap and bbam ≤ 2 %)")
    for name in sys.argv[1:] or ["cap", "bbam", "fixmatch"]:
        images = share(on_images(name, plugins))
        vectors = share(on_vectors(plugins.methods[name]))
        print(f"{name:12} small-cnn {images:6.1%}   vectors {vectors:6.1%}", flush=True)


if __name__ == "__main__":
    main()
