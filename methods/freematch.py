"""FreeMatch's self-adaptive thresholds, adapted to labels that are decided one by one."""

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
    moved_thresholds,
    option,
    usage,
)


class FreeMatch(Method):
    """Each label's threshold is the running mean of the model's own confidence in it."""

    name = "freematch"
    paper = (
        "Wang et al., FreeMatch: Self-adaptive Thresholding for Semi-supervised Learning, ICLR 2023"
    )
    regimes = {"semi"}
    unlabelled_views = ("weak", "strong")
    differences = (
        "single-label in paper and code: here softmax, argmax and cross-entropy are a sigmoid, "
        "[q ≥ ½] and BCE per label",
        "the global threshold times a class modulation (paper) becomes one threshold per label, from "
        "½ on; the fairness term, which favours equal class frequencies, is left out",
        "running averages have the momentum min(m, (1 + t) / (10 + t)) at step t, as the average of the "
        "weights has: the papers' 0.999 was chosen for 2²⁰ steps, and leaves a short run at its start of "
        "½ (averages=paper: m at every step)",
        "a warm-up on labelled rows comes first, as for every method here (paper: none)",
    )

    @dataclass(frozen=True)
    class Config(Method.Config):
        momentum: float = option(0.999, "m: of the running mean", search=choice(0.9, 0.99, 0.999))
        averages: Literal["fitted", "paper"] = option(
            "fitted", "momentum of early steps: fitted to short runs, or m as in the paper"
        )
        unlabelled_weight: float = option(
            1.0, "λ_u: weight of the unlabelled term", search=between(0.1, 10.0, log=True)
        )
        labelled_view: Literal["weak", "strong"] = option("weak", "view of the labelled rows")

    def __init__(self, config: Any, labels: int):
        super().__init__(config, labels)
        self.labelled_views = (config.labelled_view,)

    def setup(self, pools: Pools) -> None:
        device = pools.labelled.observed.device
        self.thresholds = torch.full((self.labels,), 0.5, device=device)
        self.updates = torch.zeros((), device=device)

    def loss(self, labelled: Batch, unlabelled: Batch | None) -> dict[str, Tensor]:
        config = self.config
        terms = {"labelled": bce(labelled.logits(config.labelled_view), labelled.observed).mean()}
        if unlabelled is not None:
            targets, confidence = confident_targets(unlabelled.logits("weak").detach().sigmoid())
            m = momentum_at(self.updates, config.momentum, config.averages)
            self.thresholds = moved_thresholds(self.thresholds, confidence, m)
            self.updates = self.updates + 1
            mask = (confidence >= self.thresholds).to(confidence)
            self.diagnostics = usage(targets, mask) | {"mean_threshold": self.thresholds.mean()}
            entries = consistency(unlabelled.logits("strong"), targets, mask)
            terms["unlabelled"] = config.unlabelled_weight * entries
        return terms
