"""Methods that assume unobserved entries negative, and doubt those with the largest losses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ssmlbench.core.hyperparameters import choice, option
from ssmlbench.kit.families.partial import PartialMethod
from ssmlbench.kit.pools import Pools


class LargeLossMethod(PartialMethod):
    """Unobserved entries are assumed negative; those with the largest losses are doubted."""

    paper = (
        "Kim et al., Large Loss Matters in Weakly Supervised Multi-Label Classification, CVPR 2022"
    )
    differences: ClassVar[tuple[str, ...]] = (
        "Δ_rel is stretched over the run: its last epoch doubts what the paper's tenth does "
        "(delta_epochs=none: Δ_rel per epoch as printed)",
        "a threshold of 0, which would doubt every entry, doubts no entry whose loss is 0",
        "released: 10 times the learning rate for the classifier, and a stop once validation mAP is 3 "
        "below its best; neither is done here",
    )

    @dataclass(frozen=True)
    class Config(PartialMethod.Config):
        """How fast the share of doubted entries grows."""

        delta: float = option(
            0.2,
            "Δ_rel: percent of a batch's entries doubted more every epoch",
            search=choice(0.1, 0.2, 0.3, 0.4, 0.5),
        )
        delta_epochs: int | None = option(
            10,
            "the run length that Δ_rel was chosen for (the paper's 10 epochs): a run of any length "
            "ends at the same share; none takes Δ_rel per epoch of this run",
        )

    def start_epoch(self, pools: Pools) -> None:
        """Set the share of entries that this epoch doubts."""
        self.rate = self.doubted_share(pools.epoch, pools.epochs)

    def doubted_share(self, epoch: int, epochs: int) -> float:
        """r_e = (e - 1) Δ, e from 1."""
        return (epoch - 1) * self.delta(epochs)

    def delta(self, epochs: int) -> float:
        """Δ as a fraction, per epoch of this run."""
        delta: float = self.config.delta
        planned = self.config.delta_epochs
        stretch = 1.0 if planned is None else (planned - 1) / max(epochs - 1, 1)
        return delta / 100 * stretch


def large_losses(losses: Tensor, observed: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """The unobserved entries whose loss reaches t, and t: the ⌈B K r⌉-th largest of theirs.

    losses: B × K, of assumed negatives. Where there are fewer unobserved entries than that, t is 0;
    entries without a loss are then still left alone.
    """
    unobserved = observed < 0
    u = (losses * unobserved).detach()
    # Rounded first: ⌈1000 × 0.003⌉ must be 3 whatever the last bit of the product is.
    k = min(math.ceil(round(u.numel() * rate, 6)), u.numel())
    if k < 1:
        return torch.zeros_like(unobserved), u.new_full((), torch.inf)
    t = u.flatten().topk(k).values[-1]
    return unobserved & (u >= t) & (u > 0), t
