"""The batches of an epoch's steps: rows and views, drawn from the seed, the epoch and the step alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ssmlbench.core.prefetch import ahead
from ssmlbench.core.seeds import stream
from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs.splits import DeferredView, ReadRows
from ssmlbench.inputs.transfer import Moved, Transfer
from ssmlbench.kit.method import Method
from ssmlbench.kit.pools import Batch, Forward, Pools
from ssmlbench.training.model import Model
from ssmlbench.training.run_data import RunData

LEAST_EPOCH_STEPS, MOST_EPOCH_STEPS = 25, 150
"""Bounds of an epoch's steps on fixed features: 1,000 to 6,000 in a run of 40 epochs (docs/recipe.md)."""

StepInputs = dict[tuple[str, str], Tensor | DeferredView]
"""Inputs by (pool, view)."""
ROWS = "rows"
"""The key of the rows' positions: (pool, ROWS), where inputs have (pool, view)."""


@dataclass
class EpochPlan:
    """The positions, in their pools, of the rows of every step of an epoch."""

    epoch: int  # counted from 0
    labelled: list[Tensor]
    unlabelled: list[Tensor] | None = None

    def __len__(self) -> int:
        return len(self.labelled)

    @property
    def rows(self) -> int:
        """Rows of all steps together."""
        return sum(map(len, self.labelled)) + sum(map(len, self.unlabelled or []))

    def positions(self, step: int) -> dict[str, Tensor]:
        """Pool → positions of the rows of one step."""
        if self.unlabelled is None:
            return {"labelled": self.labelled[step]}
        return {"labelled": self.labelled[step], "unlabelled": self.unlabelled[step]}


def steps_an_epoch(spec: RunSpec, labelled: int, unlabelled: int, warming_up: bool) -> int:
    """Gradient steps of an epoch: ⌈N_u / B_u⌉ in every phase.

    `--epoch-steps` and the recipe for fixed features set another number; `--epoch labelled` counts
    warm-up over the labelled rows.
    """
    if spec.counts_steps:
        return spec.epoch_steps or steps_for(labelled)
    over_labelled = warming_up and spec.epoch_count == "labelled"
    return math.ceil(
        (labelled if over_labelled or not unlabelled else unlabelled) / spec.batch_size
    )


def steps_for(labelled: int) -> int:
    """1.5 √N_l gradient steps an epoch, within bounds: 60 √N_l in the 40 epochs of a run."""
    steps = math.ceil(1.5 * math.sqrt(labelled))
    return min(max(steps, LEAST_EPOCH_STEPS), MOST_EPOCH_STEPS)


def plan_epoch(
    spec: RunSpec, epoch: int, steps: int, labelled: int, unlabelled: int, mixed: bool
) -> EpochPlan:
    """Draw the rows of every step of an epoch.

    A mixed step has B_l labelled and B_u unlabelled rows; a step without unlabelled rows has B_u
    labelled ones. labelled, unlabelled: how many rows each pool has.
    """
    size = spec.labelled_batch_size if mixed else spec.batch_size
    draw = stream(spec.seed, "labelled", epoch)
    # Labelled rows are cycled and reshuffled; without an unlabelled pool, an epoch is one pass.
    needed = steps * size if unlabelled or spec.counts_steps else labelled
    batches = _cycled(labelled, needed, draw).split(size)
    if not mixed:
        return EpochPlan(epoch, list(batches))
    needed = steps * spec.batch_size if spec.counts_steps else unlabelled
    order = _cycled(unlabelled, needed, stream(spec.seed, "unlabelled", epoch))
    return EpochPlan(epoch, list(batches), list(order.split(spec.batch_size)))


def _cycled(rows: int, needed: int, generator: torch.Generator) -> Tensor:
    """Positions of `needed` rows: as many passes over all rows as that takes, each newly shuffled."""
    passes = math.ceil(needed / rows)
    orders = [torch.randperm(rows, generator=generator) for _ in range(passes)]
    return torch.cat(orders)[:needed]


def _views(
    read: Mapping[str, ReadRows],
    views: Mapping[str, tuple[str, ...]],
    generator: torch.Generator,
    deferred: bool,
) -> StepInputs:
    """The views of each pool's rows. deferred: views that the device can apply are only drawn."""
    return {
        (pool, view): rows.deferred(view, generator) if deferred else rows.view(view, generator)
        for pool, rows in read.items()
        for view in views[pool]
    }


class Batching:
    """The batches of every step: their rows, views and observed labels."""

    def __init__(
        self, spec: RunSpec, method: Method, run_data: RunData, model: Model, pools: Pools
    ):
        self.spec = spec
        self.method = method
        self.inputs = run_data.train
        self.rows = run_data.rows
        self.model = model
        self.transfer = Transfer(model.device)
        self.pools = pools
        self.labels = torch.from_numpy(run_data.observation.labels)
        # A method may change the observed labels in its pools; those of batches must not change. On
        # the CPU batches read the run's own matrix, on other devices a second copy.
        self.observed = {
            name: pool.observed.clone()
            for name, pool in (("labelled", pools.labelled), ("unlabelled", pools.unlabelled))
            if model.device.type != "cpu"
        }

    def steps_an_epoch(self, warming_up: bool) -> int:
        """Gradient steps of an epoch."""
        labelled, unlabelled = len(self.pools.labelled), len(self.pools.unlabelled)
        return steps_an_epoch(self.spec, labelled, unlabelled, warming_up)

    def plan(self, epoch: int, warming_up: bool) -> EpochPlan:
        """Draw the rows of every step of an epoch, counted from 0."""
        labelled, unlabelled = len(self.pools.labelled), len(self.pools.unlabelled)
        mixed = self.mixes_pools(warming_up)
        steps = self.steps_an_epoch(warming_up)
        return plan_epoch(self.spec, epoch, steps, labelled, unlabelled, mixed)

    def mixes_pools(self, warming_up: bool) -> bool:
        """Whether the steps of a phase have rows of both pools."""
        views = self.method.unlabelled_views
        return bool(len(self.pools.unlabelled) and views and not warming_up)

    def batches(self, plan: EpochPlan, workers: int) -> Iterator[tuple[Batch, Batch | None]]:
        """Yield the labelled and the unlabelled batch of each step; threads read inputs ahead."""
        threads = workers if self.inputs.on_the_fly else 0
        loaded = ahead(lambda step: self.step_inputs(plan, step), len(plan), threads)
        for inputs in self.transfer.ahead(loaded):
            yield self.step_batches(inputs)

    def step_inputs(self, plan: EpochPlan, step: int) -> list[StepInputs]:
        """The inputs of the network and of the averaged network in one step, and the rows' positions.

        They depend on the seed, the epoch and the step alone: steps can be prepared in any order.
        """
        generator = stream(self.spec.seed, "views", plan.epoch, step)
        method, positions = self.method, plan.positions(step)
        read = {
            pool: self.inputs.read(self.rows[pool][where.numpy()])
            for pool, where in positions.items()
        }
        views = {"labelled": method.labelled_views, "unlabelled": method.unlabelled_views}
        averaged = {"labelled": (), "unlabelled": method.unlabelled_ema_views}
        deferred = self.transfer.applies_views
        inputs = [_views(read, names, generator, deferred) for names in (views, averaged)]
        inputs = [self.transfer.trimmed(self.model.encoder, one) for one in inputs]
        return self.transfer.pinned(
            [*inputs, {(pool, ROWS): where for pool, where in positions.items()}]
        )

    def step_batches(self, inputs: Moved[tuple[str, str]]) -> tuple[Batch, Batch | None]:
        """The labelled and the unlabelled batch of a step, on the model's device.

        inputs: the result of `step_inputs`, moved to the device.
        """
        raw, averaged, positions = inputs
        forward = Forward(self.model.run, raw, known=self.inputs.views)
        ema_forward = Forward(self.model.run_averaged, averaged, "ema_views", self.inputs.views)
        batches = {}
        for (name, _), where in positions.items():
            batches[name] = Batch(name, where, self._observed(name, where), forward, ema_forward)
        return batches["labelled"], batches.get("unlabelled")

    def _observed(self, pool: str, where: Tensor) -> Tensor:
        """The observed labels of the rows at some positions of a pool, B × K."""
        if pool in self.observed:
            return self.observed[pool][where]
        return self.labels[torch.from_numpy(self.rows[pool])[where]]
