"""Hands the judge features and scores of a sample of training rows, for analyses of finished runs.

If a method passes over the unlabelled pool, the sample's outputs come from that pass; otherwise there is
a pass over the sample every few epochs. Training is not affected: its random stream and the state of the
network stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ssmlbench.core.spec import RunSpec
from ssmlbench.kit.heads import CosineHead
from ssmlbench.kit.pools import Outputs
from ssmlbench.protocol.diagnostics import Float32Array, sampled_rows
from ssmlbench.training.run_data import RunData

if TYPE_CHECKING:
    from ssmlbench.training.evaluation import Evaluator

RECORDED = ("ema", "weak")
"""The recorded network and view: class-aware methods rank the pool by its scores."""
EXTRA_PASS_EVERY = 5
"""Epochs between two passes over the sample alone."""

Watch = Callable[[int, Outputs], None]
"""Called with the position of a batch's first row and the batch's outputs."""


class Recorder:
    """The sample's features and logits in the present epoch, by pool."""

    def __init__(self, spec: RunSpec, run_data: RunData):
        self.spec = spec
        self.judge = run_data.judge
        # A trial of `tune` has no hidden labels to be compared with.
        self.on = spec.judged_on == "test"
        self.sample = sampled_rows(run_data.observation, spec.seed) if self.on else {}
        self.rows = {name: run_data.rows[name][where] for name, where in self.sample.items()}
        self._seen: dict[str, list[Outputs]] = {}

    def watch(self, pool: str, model: str, view: str) -> Watch | None:
        """The callback for a pass over a pool; None if that pass is not recorded."""
        if not self.on or (model, view) != RECORDED:
            return None
        pieces = self._seen[pool] = []
        sample = self.sample[pool]

        def keep(start: int, outputs: Outputs) -> None:
            size = len(outputs["logits"])
            first, last = np.searchsorted(sample, [start, start + size])
            chosen: Tensor | slice = slice(None)
            if last - first < size:
                chosen = torch.from_numpy(sample[first:last] - start).to(outputs["logits"].device)
            pieces.append({name: outputs[name][chosen] for name in ("features", "logits")})

        return keep

    def record(self, evaluator: Evaluator, epochs: int) -> None:
        """Hand the sample to the judge, if its outputs are known or a pass is due.

        epochs: the number of finished ones.
        """
        seen, self._seen = self._seen, {}
        due = epochs == self.spec.epochs or (epochs > 0 and epochs % EXTRA_PASS_EVERY == 0)
        if not self.on or not (due or "unlabelled" in seen):
            return
        device = evaluator.model.device
        devices = [device] if device.type == "cuda" else []
        with torch.no_grad(), torch.random.fork_rng(devices=devices):
            parts = {
                name: _joined(seen[name]) if name in seen else self._pass(evaluator, name, epochs)
                for name in self.sample
            }
            outputs = _joined(list(parts.values()))
            was_training = evaluator.method.training
            scores = evaluator.method.eval().scores(outputs["logits"])
            evaluator.method.train(was_training)
        logits = _array(outputs["logits"])
        features = _array(outputs["features"]).reshape(len(logits), -1)
        cosine = isinstance(evaluator.model.network.head, CosineHead)
        valid = _valid_scores(scores, logits)
        self.judge.record(epochs, features, valid, logits if cosine else None)

    def finish(self, evaluator: Evaluator) -> None:
        """At the end of training, hand in the sample and the classifier's weights."""
        self.record(evaluator, self.spec.epochs)
        weight = getattr(evaluator.model.averaged_network.head, "weight", None)
        if self.on and isinstance(weight, Tensor) and len(weight) == evaluator.method.labels:
            self.judge.hand_in_weights(_array(weight))

    def _pass(self, evaluator: Evaluator, pool: str, epochs: int) -> Outputs:
        model, view = RECORDED
        purpose = ("recorded views", pool, epochs)
        names = ("features", "logits")
        rows = self.rows[pool]
        return evaluator.predict(model, evaluator.run_data.train, rows, view, purpose, names)


def _joined(pieces: list[Outputs]) -> Outputs:
    return {name: torch.cat([piece[name] for piece in pieces]) for name in ("features", "logits")}


def _valid_scores(scores: object, logits: Float32Array) -> Float32Array | None:
    """The scores if they are N × K in [0, 1], else None: a method may override `test_scores` alone."""
    if not isinstance(scores, Tensor) or scores.shape != logits.shape:
        return None
    values = _array(scores)
    inside = values.size == 0 or (values.min() >= 0 and values.max() <= 1)  # false for NaN
    return values if inside else None


def _array(tensor: Tensor) -> Float32Array:
    return tensor.detach().float().cpu().numpy()
