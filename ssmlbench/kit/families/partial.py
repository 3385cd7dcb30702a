"""Methods for partial labels: an entry's observed label decides its target and weight.

Codes are 1 (positive), 0 (known negative) and -1 (unobserved). The hyper-parameter `reading` says whether
the unlabelled rows of `semi` are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ssmlbench.core.hyperparameters import between, option
from ssmlbench.kit.gradient_step import GradientStep
from ssmlbench.kit.losses import coded_loss
from ssmlbench.kit.method import Method, summed
from ssmlbench.kit.pools import Batch, Pool, Pools

KAPPA = (
    "κ: expected positives of a row; none takes the prior's sum, which is the labelled rows' mean "
    "in semi, partial and full. Give it in the two single-positive regimes (the sum is too low there) "
    "and in partial-positive"
)
"""The help text of the hyper-parameter κ."""


def expected_positives(given: float | None, pool: Pool) -> Tensor:
    """κ as a tensor: the user's value, or the sum of the prior."""
    estimated = pool.prior.sum().float()
    return estimated if given is None else torch.full_like(estimated, given)


class PartialMethod(Method):
    """The mean of one entry loss over the rows of both batches.

    A subclass defines the target and weight of unobserved entries, or the whole `entry_loss`.
    """

    regimes = frozenset(
        {
            *("semi", "single-positive", "single-positive-negatives"),
            *("partial-positive", "partial", "full"),
        }
    )
    warm_up = False

    @dataclass(frozen=True)
    class Config(Method.Config):
        """How unlabelled rows are read."""

        reading: Literal["an", "lab"] = option(
            "an", "unlabelled rows in semi: an, all their entries are unobserved; lab, left out"
        )

    def __init__(self, config: Any, labels: int):
        super().__init__(config, labels)
        if config.reading == "lab":
            self.unlabelled_views = ()

    def setup(self, pools: Pools) -> None:
        """Note where the unlabelled rows start in a table of all rows."""
        self.n_labelled = len(pools.labelled)

    def unobserved(self, p: Tensor) -> tuple[Tensor | float, float]:
        """The target and the weight of unobserved entries, whose probabilities are p."""
        raise NotImplementedError(f"{type(self).__name__} must define unobserved or entry_loss")

    def positive(self) -> float:
        """The target of observed positives."""
        return 1.0

    def entry_loss(self, logits: Tensor, observed: Tensor) -> Tensor:
        """B × K."""
        p = logits.sigmoid()
        return coded_loss(p, logits, observed, *self.unobserved(p), self.positive())

    def terms(self, logits: Tensor, observed: Tensor) -> dict[str, Tensor]:
        """The terms of the loss, from the rows of both batches together."""
        return {"entries": self.entry_loss(logits, observed).mean()}

    def loss(self, labelled: Batch, unlabelled: Batch | None) -> dict[str, Tensor]:
        """The terms of both batches together."""
        return self.terms(*self.together(labelled, unlabelled))

    def together(self, labelled: Batch, unlabelled: Batch | None) -> tuple[Tensor, Tensor]:
        """Logits and observed labels of all rows of the step."""
        batches = [labelled] if unlabelled is None else [labelled, unlabelled]
        logits = torch.cat([batch.logits("strong") for batch in batches])
        return logits, torch.cat([batch.observed for batch in batches])

    def positions(self, labelled: Batch, unlabelled: Batch | None) -> Tensor:
        """The rows' places in a table of all rows: the labelled pool, then the unlabelled one."""
        if unlabelled is None:
            return labelled.rows
        return torch.cat([labelled.rows, self.n_labelled + unlabelled.rows])

    def all_observed(self, pools: Pools) -> Tensor:
        """The observed labels of that table, N × K."""
        if not self.unlabelled_views:
            return pools.labelled.observed
        return torch.cat([pools.labelled.observed, pools.unlabelled.observed])


class PenalisedMethod(PartialMethod):
    """Unobserved entries are learnt as negatives, with a penalty on the classifier's weights."""

    paper = "a baseline of Zhou et al., Acknowledging the Unknown […], ECCV 2022"
    differences = (
        "neither the regularised parameters nor λ are stated: the classifier's weights without its "
        "bias, λ from a grid of 1e-6 to 1e-3",
        "the trainer's decoupled weight decay is used as well, as for every method",
    )

    @dataclass(frozen=True)
    class Config(PartialMethod.Config):
        """The weight of the penalty."""

        penalty: float = option(
            1e-5, "λ: weight of the penalty", search=between(1e-6, 1e-3, log=True)
        )

    def unobserved(self, p: Tensor) -> tuple[float, float]:
        """Assumed negative: target 0, weight 1."""
        return 0.0, 1.0

    def norm(self, weight: Tensor) -> Tensor:
        """The norm of the classifier's weights that is kept small."""
        raise NotImplementedError(f"{type(self).__name__} must define norm")

    def step(
        self, labelled: Batch, unlabelled: Batch | None, update: GradientStep
    ) -> dict[str, Tensor]:
        """One step on the entries' loss and the penalty of the head's weights."""
        terms = self.loss(labelled, unlabelled)
        terms["weights"] = self.weight_penalty(update.network.head.get_parameter("weight"))
        update.backward(summed(terms))
        return terms

    def weight_penalty(self, weight: Tensor) -> Tensor:
        """λ times the norm of the classifier's weights, K × D."""
        penalty: float = self.config.penalty
        return penalty * self.norm(weight)
