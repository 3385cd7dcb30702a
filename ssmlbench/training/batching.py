"""Which rows stand in which step of an epoch. Drawn from the seed and the epoch alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ssmlbench.core.seeds import stream
from ssmlbench.core.spec import RunSpec


@dataclass
class EpochPlan:
    """The positions, in their pools, of the rows of every step of an epoch."""

    labelled: list[Tensor]
    unlabelled: list[Tensor] | None = None

    def __len__(self) -> int:
        return len(self.labelled)

    def positions(self, step: int) -> dict[str, Tensor]:
        found = {"labelled": self.labelled[step]}
        if self.unlabelled is not None:
            found["unlabelled"] = self.unlabelled[step]
        return found


def steps_an_epoch(spec: RunSpec, labelled: int, unlabelled: int, warming_up: bool) -> int:
    """⌈N_u / B_u⌉ in every phase; `--epoch labelled` counts warm-up over the labelled rows."""
    over_labelled = warming_up and spec.epoch_count == "labelled"
    return math.ceil(
        (labelled if over_labelled or not unlabelled else unlabelled) / spec.batch_size
    )


def plan_epoch(
    spec: RunSpec, epoch: int, steps: int, labelled: int, unlabelled: int, mixed: bool
) -> EpochPlan:
    """Steps of B_l labelled beside B_u unlabelled rows (mixed), or of B_u labelled rows where no
    unlabelled ones are used, so that no step is starved.

    labelled, unlabelled: how many rows each pool has.
    """
    size = spec.labelled_batch_size if mixed else spec.batch_size
    draw = stream(spec.seed, "labelled", epoch)
    # Labelled rows are cycled and reshuffled; where they are all there is, once is an epoch.
    needed = steps * size if unlabelled else labelled
    passes = math.ceil(needed / labelled)
    cycled = torch.cat([torch.randperm(labelled, generator=draw) for _ in range(passes)])
    batches = list(cycled[:needed].split(size))
    if not mixed:
        return EpochPlan(batches)
    order = torch.randperm(unlabelled, generator=stream(spec.seed, "unlabelled", epoch))
    return EpochPlan(batches, list(order.split(spec.batch_size)))
