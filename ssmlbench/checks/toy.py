"""Toy data to train a method on in seconds: for the conformance checks, tests and benchmarks."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ssmlbench.core.events import Notify
from ssmlbench.core.seeds import stream_seed
from ssmlbench.core.spec import REGIME_NUMBERS, RunSpec
from ssmlbench.inputs.encoders import Encoder, SmallCnn, Vector
from ssmlbench.inputs.splits import Inputs
from ssmlbench.inputs.views import image_views, vector_views
from ssmlbench.kit.contract import build_method
from ssmlbench.kit.method import Method
from ssmlbench.protocol.judge import Judge
from ssmlbench.protocol.observation import Labels, observe
from ssmlbench.protocol.sealed import SealedTruth
from ssmlbench.training.checkpoint import Checkpoint
from ssmlbench.training.evaluation import Outcome
from ssmlbench.training.run_data import RunData
from ssmlbench.training.trainer import Trainer, TrainingContext

ROWS, TEST_ROWS, LABELS = 72, 24, 5
PASS_ROWS = 10
"""Rows of one pass over a pool: each pool takes several passes, and the last one is smaller."""
CHECKPOINT = "checkpoint.safetensors"
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Toy:
    """Inputs with labels that can be learnt to some degree within seconds."""

    kind: str
    train: Inputs
    test: Inputs
    truth: Labels
    test_truth: Labels

    @property
    def encoder(self) -> type[Encoder]:
        """The encoder for its kind of input."""
        return {"vector": Vector, "image": SmallCnn}[self.kind]


def toy(kind: str, empty_label: bool = False) -> Toy:
    """The toy data of one kind of input, "vector" or "image". empty_label: no row has the last label."""
    random = np.random.default_rng(7)
    n = ROWS + TEST_ROWS
    labels = (random.random((n, LABELS)) < 0.3).astype(np.int8)
    labels[np.arange(n), random.integers(0, LABELS, n)] = 1
    if empty_label:
        labels[:, -1] = 0
    if kind == "vector":
        made = labels @ random.normal(size=(LABELS, 12)) + 0.3 * random.normal(size=(n, 12))
        values, views = torch.from_numpy(made).float(), vector_views()
    else:
        noise = random.integers(0, 60, (n, 1, 8, 2 * LABELS))
        strips = labels.astype(np.int64).repeat(2, axis=1)[:, None, None, :]
        values = torch.from_numpy(noise + 150 * strips)
        values, views = values.to(torch.uint8), image_views(flips=False)
    return Toy(
        kind,
        Inputs(values[:ROWS], views),
        Inputs(values[ROWS:], views),
        labels[:ROWS],
        labels[ROWS:],
    )


def spec_for(cls: type[Method], regime: str, **changes: Any) -> RunSpec:
    """A short run of a method on the toy."""
    values: dict[str, Any] = {
        "method": cls.name,
        "dataset": "toy",
        "regime": regime,
        "epochs": 5,
        "warmup_epochs": 2,
        "batch_size": 16,
        "labelled_batch_size": 8,
        "projection": cls.projection,
        "config": dataclasses.asdict(cls.Config()),
    }
    if number := REGIME_NUMBERS.get(regime):
        values[number.name] = number.example
    return RunSpec(**{**values, **changes})


def train(cls: type[Method], data: Toy, spec: RunSpec, **options: Any) -> Outcome:
    """Train on the toy; the options are those of `toy_trainer`."""
    trainer, judge = toy_trainer(cls, data, spec, **options)
    return Outcome.of(trainer.train(), judge.judgements)


def toy_trainer(
    cls: type[Method],
    data: Toy,
    spec: RunSpec,
    *,
    truth: Labels | None = None,
    test_truth: Labels | None = None,
    folder: Path | None = None,
    notify: Notify = lambda event: None,
    device: torch.device = CPU,
) -> tuple[Trainer, Judge]:
    """The trainer of a run on the toy, and its judge.

    truth, test_truth: the true labels, if not the toy's own.
    """
    truth = data.truth if truth is None else truth
    # Drawing the observation may read the true labels, so it always gets the toy's own.
    observation = observe(data.truth, spec)
    test_truth = data.test_truth if test_truth is None else test_truth
    judge = Judge(spec, observation, SealedTruth(truth), test_truth)
    run_data = RunData.beside(judge, data.train, data.test)
    torch.manual_seed(stream_seed(spec.seed, "method"))
    method = build_method(cls, cls.Config(**spec.config), LABELS)
    torch.manual_seed(stream_seed(spec.seed, "network"))
    example = data.train.view(np.zeros(1, dtype=np.int64), "plain", torch.Generator())[0]
    checkpoint = Checkpoint(folder / CHECKPOINT) if folder else None
    context = TrainingContext(device, checkpoint, notify)
    trainer = Trainer(spec, method, data.encoder(example), run_data, context)
    trainer.model.batch_rows = PASS_ROWS
    return trainer, judge


def same_bits(a: Outcome, b: Outcome) -> bool:
    """Whether two runs ended with the same weights and scores."""
    assert a.network is not None
    assert b.network is not None
    weights = zip(a.network.state_dict().values(), b.network.state_dict().values(), strict=True)
    same_weights = all(torch.equal(x.cpu(), y.cpu()) for x, y in weights)
    return np.array_equal(a.scores, b.scores) and same_weights
