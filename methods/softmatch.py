"""SoftMatch, adapted to labels that are decided one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ssmlbench.api import (
    Batch,
    Method,
    Pools,
    bce,
    between,
    choice,
    confident_targets,
    consistency,
    momentum_at,
    option,
    usage,
)

RARE = 1e-6  # rates are kept this far from 0 and 1, where odds end


class SoftMatch(Method):
    """Every entry is weighted by a Gaussian of its confidence, truncated to 1 above the mean."""

    name = "softmatch"
    paper = (
        "Chen et al., SoftMatch: Addressing the Quantity-Quality Tradeoff in Semi-supervised "
        "Learning, ICLR 2023"
    )
    regimes = {"semi"}
    unlabelled_views = ("weak", "strong")
    differences = (
        "single-label in paper and code: here softmax, argmax and cross-entropy are a sigmoid, "
        "[q ≥ ½] and BCE per label, with one Gaussian per label",
        "uniform alignment (paper and code) would make every label positive half the time: "
        "off by default; alignment=prior uses the labelled rows' rate instead",
        "running averages have the momentum min(m, (1 + t) / (10 + t)) at step t, as the average of the "
        "weights has: the papers' 0.999 was chosen for 2²⁰ steps, and leaves a short run at its start of "
        "½ (averages=paper: m at every step)",
        "a warm-up on labelled rows comes first, as for every method here (paper: none)",
    )

    @dataclass(frozen=True)
    class Config(Method.Config):
        width: float = option(
            2.0, "n_σ: the Gaussian's variance is var / n_σ²", search=between(1.0, 3.0)
        )
        momentum: float = option(
            0.999, "m: of the running mean and variance", search=choice(0.9, 0.99, 0.999)
        )
        averages: Literal["fitted", "paper"] = option(
            "fitted", "momentum of early steps: fitted to short runs, or m as in the paper"
        )
        gaussians: Literal["one", "two"] = option(
            "one", "two: separate ones for positives and negatives"
        )
        alignment: Literal["none", "prior"] = option("none", "shift the odds to the labelled rate")
        unlabelled_weight: float = option(
            1.0, "λ_u: weight of the unlabelled term", search=between(0.1, 10.0, log=True)
        )
        labelled_view: Literal["weak", "strong"] = option("weak", "view of the labelled rows")

    def __init__(self, config: Any, labels: int):
        super().__init__(config, labels)
        self.labelled_views = (config.labelled_view,)

    def setup(self, pools: Pools) -> None:
        prior, groups = pools.labelled.prior.float(), {"one": 1, "two": 2}[self.config.gaussians]
        self.prior = prior
        self.rate = torch.full_like(prior, torch.nan)  # P: unknown before the first batch
        self.steps = torch.zeros((), device=prior.device)
        # The least confident a binary decision can be, and a variance that lets everything pass.
        self.mu = torch.full_like(prior, 0.5).repeat(groups, 1)
        self.var = torch.ones_like(prior).repeat(groups, 1)
        self.updates = torch.zeros_like(self.mu)  # of each Gaussian

    def loss(self, labelled: Batch, unlabelled: Batch | None) -> dict[str, Tensor]:
        config = self.config
        terms = {"labelled": bce(labelled.logits(config.labelled_view), labelled.observed).mean()}
        if unlabelled is not None:
            targets, weights = self.weigh(unlabelled.logits("weak").detach())
            self.diagnostics = usage(targets, weights)
            entries = consistency(unlabelled.logits("strong"), targets, weights)
            terms["unlabelled"] = config.unlabelled_weight * entries
        return terms

    def weigh(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Targets and weights, B × K; the running statistics take this batch in first."""
        config = self.config
        targets, confidence = confident_targets(logits.sigmoid())
        if config.alignment == "prior":
            m = momentum_at(self.steps, config.momentum, config.averages)
            self.rate, self.steps = moved_rate(self.rate, logits.sigmoid(), m), self.steps + 1
            # Only the weight sees aligned odds; the target is the model's own, as in the code.
            confidence = confident_targets(aligned(logits, self.prior, self.rate).sigmoid())[1]
        two = config.gaussians == "two"
        groups = torch.stack([1 - targets, targets]) if two else torch.ones_like(targets)[None]
        m = momentum_at(self.updates, config.momentum, config.averages)
        self.mu, self.var = moved_gaussians(self.mu, self.var, confidence, groups, m)
        self.updates = self.updates + (groups.sum(1) > 0)
        weights = truncated_gaussian(confidence, self.mu[:, None], self.var[:, None], config.width)
        return targets, (groups * weights).sum(0)


def truncated_gaussian(confidence: Tensor, mu: Tensor, var: Tensor, n_sigma: float) -> Tensor:
    """exp(-min(conf - μ, 0)² / (2 var / n_σ²)): 1 from the mean upwards."""
    short = (confidence - mu).clamp(max=0)
    return torch.exp(-(short**2) * n_sigma**2 / (2 * var.clamp(min=1e-12)))


def moved_gaussians(
    mu: Tensor, var: Tensor, confidence: Tensor, groups: Tensor, m: float | Tensor
) -> tuple[Tensor, Tensor]:
    """Running mean and unbiased variance, G × K, of each group's confidences; groups: G × B × K.

    A group with no member in the batch keeps its mean, one with fewer than two its variance.
    """
    count = groups.sum(1)
    mean = (groups * confidence).sum(1) / count.clamp(min=1)
    spread = (groups * (confidence - mean[:, None]) ** 2).sum(1) / (count - 1).clamp(min=1)
    return (
        torch.where(count > 0, m * mu + (1 - m) * mean, mu),
        torch.where(count > 1, m * var + (1 - m) * spread, var),
    )


def moved_rate(rate: Tensor, q: Tensor, m: float | Tensor) -> Tensor:
    """P_k: the running mean of q, equal to the first batch's to begin with."""
    return torch.where(rate.isnan(), q.mean(0), m * rate + (1 - m) * q.mean(0))


def aligned(logits: Tensor, prior: Tensor, rate: Tensor) -> Tensor:
    """odds(q') = odds(q) · odds(π) / odds(P), in logits."""
    return logits + prior.logit(RARE) - rate.logit(RARE)
