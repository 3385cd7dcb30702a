"""Loss and mAP around the weights of a kept model, along filter-normalised random directions.

Li et al., Visualizing the loss landscape of neural nets, NeurIPS 2018.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from ssmlbench.core.errors import UserError
from ssmlbench.core.seeds import stream
from ssmlbench.data.prepared import prepared_task
from ssmlbench.inputs.splits import RowNumbers
from ssmlbench.protocol.diagnostics import Float32Array
from ssmlbench.protocol.metrics import Values, average_precision
from ssmlbench.protocol.observation import Labels, observe
from ssmlbench.runs.saved_model import SavedModel
from ssmlbench.runs.surface import Surface
from ssmlbench.training.model import Model

SMALLEST = 1e-7
"""Scores are clipped to this distance from 0 and 1, so that their logarithm is finite."""

Direction = Mapping[str, Tensor]
"""Name of a weight → its change for an offset of 1."""


def surface_around(model: SavedModel, line: Values, grid: Values, rows: int, seed: int) -> Surface:
    """The surface at all offsets; of at most `rows` labelled and as many test rows, drawn by the seed."""
    if model.spec.judged_on != "test" or model.spec.folds:
        raise UserError(f"{model.spec}: it was not judged on a test set, so no mAP can be computed")
    task = prepared_task(model.spec.dataset, model.spec.data)
    observation = observe(task.truth("train"), model.spec)
    labelled = _some(observation.labelled, rows, seed)
    judged = _some(np.arange(len(task.truth("test"))), rows, seed)
    truth = task.truth("test")[judged] == 1
    train, test = task.inputs("train"), task.inputs("test")
    with model.mistakes():
        scorer, ours = model.scorer([train[int(row)] for row in labelled])
        _, theirs = model.scorer([test[int(row)] for row in judged])
    directions = [filter_normalised(scorer.model, seed, number) for number in (1, 2)]

    def at(*offsets: float) -> tuple[float, float]:
        with model.mistakes(), moved(scorer.model, directions, offsets):
            loss = cross_entropy(scorer.scores(ours), observation.labels[labelled])
            precision = average_precision(scorer.scores(theirs), truth)
        defined = precision[np.isfinite(precision)]
        return loss, float(defined.mean()) if defined.size else float("nan")

    along = np.asarray([at(a) for a in line])
    around = np.asarray([[at(a, b) for a in grid] for b in grid]).reshape(len(grid), len(grid), 2)
    return Surface(
        line=line,
        loss=along[:, 0],
        map=along[:, 1],
        grid=grid,
        grid_loss=around[..., 0],
        grid_map=around[..., 1],
        rows=(len(labelled), len(judged)),
    )


def filter_normalised(model: Model, seed: int, number: int) -> Direction:
    """A random direction whose filters are as long as those of the network.

    A filter is a row of a matrix, or what makes one output of a convolution. Vectors (biases,
    normalisation) and the fixed weights of an encoder stay as they are. Networks of one shape get
    the same random numbers.
    """
    fixed = {f"encoder.{name}" for name in model.encoder.fixed_names()}
    direction = {}
    for name, weight in model.averaged_network.named_parameters():
        if weight.ndim > 1 and name not in fixed:
            drawn = torch.randn(weight.shape, generator=stream(seed, "direction", number, name))
            filters, own = drawn.flatten(1), weight.detach().float().cpu().flatten(1)
            lengths = own.norm(dim=1) / filters.norm(dim=1).clamp_min(SMALLEST)
            direction[name] = (filters * lengths[:, None]).view_as(drawn).to(weight)
    return direction


@contextmanager
def moved(
    model: Model, directions: Sequence[Direction], offsets: Sequence[float]
) -> Iterator[None]:
    """Move the weights of the network and of its average inside the block; restore them after it."""
    networks = (model.network, model.averaged_network)
    weights = [(name, p) for network in networks for name, p in network.named_parameters()]
    before = [weight.detach().clone() for _, weight in weights]
    try:
        with torch.no_grad():
            for name, weight in weights:
                for direction, offset in zip(directions, offsets, strict=False):
                    if name in direction:
                        weight.add_(direction[name], alpha=offset)
        yield
    finally:
        with torch.no_grad():
            for (_, weight), start in zip(weights, before, strict=True):
                weight.copy_(start)


def cross_entropy(scores: Float32Array, known: Labels) -> float:
    """The mean binary cross-entropy of the known entries; the same measure for every method.

    Where no negative is known (single-positive), entries that are not known count as negative.
    """
    if not (known == 0).any():
        known = np.where(known < 0, 0, known).astype(known.dtype)
    p = np.clip(scores.astype(np.float64), SMALLEST, 1 - SMALLEST)
    losses = np.where(known == 1, -np.log(p), -np.log(1 - p))
    return float(losses[known >= 0].mean())


def _some(rows: RowNumbers, most: int, seed: int) -> RowNumbers:
    """The rows, or a drawn part of them, in order."""
    if len(rows) <= most:
        return rows
    chosen = np.random.default_rng([seed, 3]).choice(len(rows), most, replace=False)
    return rows[np.sort(chosen)]
