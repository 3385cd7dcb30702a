"""FlatMatch: the worst nearby model for labelled rows must agree with the present one elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ssmlbench.api import (
    Batch,
    GradientStep,
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


class FlatMatch(Method):
    """After a step of ρ along the labelled gradient, fit the unperturbed model's confident outputs."""

    name = "flatmatch"
    paper = (
        "Huang et al., FlatMatch: Bridging Labeled Data and Unlabeled Data with Cross-Sharpness "
        "for Semi-Supervised Learning, NeurIPS 2023"
    )
    regimes = {"semi"}
    labelled_views = ("weak",)
    unlabelled_views = ("weak", "strong")
    differences = (
        "a single-label method; the multi-label form is ours: sigmoid and BCE for softmax and CE, "
        "one threshold per label, no modulation between labels and no fairness term",
        "objective: labelled loss + cross-sharpness (paper); the released code also takes the "
        "labelled loss at the perturbed weights (objective=released)",
        "running averages have the momentum min(m, (1 + t) / (10 + t)) at step t, as the average of the "
        "weights has: the papers' 0.999 was chosen for 2²⁰ steps, and leaves a short run at its start of "
        "½ (averages=paper: m at every step)",
        "under AMP the released code adds the unscaled labelled gradient to scaled ones, which "
        "divides its weight by the loss scale; here both are in one scale",
        "a warm-up on labelled rows comes first, as for every method here (paper: none)",
    )

    @dataclass(frozen=True)
    class Config(Method.Config):
        radius: float = option(0.05, "ρ: length of the step uphill", search=choice(0.02, 0.05, 0.1))
        momentum: float = option(
            0.999, "m: weight of the old threshold", search=choice(0.9, 0.99, 0.999)
        )
        averages: Literal["fitted", "paper"] = option(
            "fitted", "momentum of early steps: fitted to short runs, or m as in the paper"
        )
        unlabelled_weight: float = option(
            1.0, "λ_u: weight of the unlabelled term", search=between(0.1, 10.0, log=True)
        )
        objective: Literal["paper", "released"] = option(
            "paper", "released: the labelled loss counts at the perturbed weights too"
        )

    def setup(self, pools: Pools) -> None:
        self.tau = torch.full((self.labels,), 0.5)
        self.updates = torch.zeros(())

    def step(
        self, labelled: Batch, unlabelled: Batch | None, update: GradientStep
    ) -> dict[str, Tensor]:
        clean = bce(labelled.logits("weak"), labelled.observed).mean()
        if unlabelled is None:
            update.backward(clean)
            return {"labelled": clean}
        targets, confidence = confident_targets(unlabelled.logits("weak").detach().sigmoid())
        m = momentum_at(self.updates, self.config.momentum, self.config.averages)
        self.tau = moved_thresholds(self.tau, confidence, m)
        self.updates = self.updates + 1
        mask = (confidence >= self.tau).to(confidence)
        self.diagnostics = usage(targets, mask)
        gradients = update.gradients(clean)
        with update.moved(ascent(gradients, self.config.radius)):
            sharpness = consistency(unlabelled.logits("strong"), targets, mask)
            terms = {"unlabelled": self.config.unlabelled_weight * sharpness}
            if self.config.objective == "released":
                terms["perturbed"] = bce(labelled.logits("weak"), labelled.observed).mean()
            update.backward(torch.stack(list(terms.values())).sum())
        update.add(gradients)
        return {"labelled": clean, **terms}


def ascent(gradients: Sequence[Tensor | None], radius: float) -> list[Tensor | None]:
    """ε = ρ g / ‖g‖, the norm over all weights together.

    No step where g has overflowed (a loss scale that is too large): weights that are not a number
    would spoil the normalisation statistics, which outlive the skipped update.
    """
    norm = torch.stack(torch._foreach_norm([g for g in gradients if g is not None])).norm()
    factor, sound = radius / norm.clamp(min=1e-12), norm.isfinite()
    return [None if g is None else torch.where(sound, g * factor, 0.0) for g in gradients]
