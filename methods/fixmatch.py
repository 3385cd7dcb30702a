"""FixMatch, adapted to labels that are decided one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from ssmlbench.api import Batch, Method, bce, between, confident_targets, consistency, option, usage


class FixMatch(Method):
    """Predictions on the weak view beyond a fixed threshold are the targets of the strong view."""

    name = "fixmatch"
    paper = (
        "Sohn et al., FixMatch: Simplifying Semi-Supervised Learning with Consistency and "
        "Confidence, NeurIPS 2020"
    )
    regimes = {"semi"}
    unlabelled_views = ("weak", "strong")
    differences = (
        "single-label in paper and code: here softmax, argmax and cross-entropy are a sigmoid, "
        "[q ≥ ½] and BCE per label, and the mask is per entry",
        "a warm-up on labelled rows comes first, as for every method here (paper: none)",
    )

    @dataclass(frozen=True)
    class Config(Method.Config):
        threshold: float = option(
            0.95, "τ: an entry is used if q ≥ τ or q ≤ 1 - τ", search=between(0.7, 0.99)
        )
        positive_threshold: float | None = option(None, "τ of q ≥ τ alone; none is threshold")
        negative_threshold: float | None = option(None, "τ of q ≤ 1 - τ alone; none is threshold")
        unlabelled_weight: float = option(
            1.0, "λ_u: weight of the unlabelled term", search=between(0.1, 10.0, log=True)
        )
        labelled_view: Literal["weak", "strong"] = option("weak", "view of the labelled rows")

    def __init__(self, config: Any, labels: int):
        super().__init__(config, labels)
        self.labelled_views = (config.labelled_view,)

    def loss(self, labelled: Batch, unlabelled: Batch | None) -> dict[str, Tensor]:
        config = self.config
        terms = {"labelled": bce(labelled.logits(config.labelled_view), labelled.observed).mean()}
        if unlabelled is not None:
            targets, mask = confident_entries(
                unlabelled.logits("weak").detach().sigmoid(),
                _given(config.positive_threshold, config.threshold),
                _given(config.negative_threshold, config.threshold),
            )
            self.diagnostics = usage(targets, mask)
            entries = consistency(unlabelled.logits("strong"), targets, mask)
            terms["unlabelled"] = config.unlabelled_weight * entries
        return terms


def confident_entries(q: Tensor, tau_pos: float, tau_neg: float) -> tuple[Tensor, Tensor]:
    """The targets, and 1 where the entry's confidence reaches the threshold of its side."""
    targets, confidence = confident_targets(q)
    return targets, (confidence >= targets * tau_pos + (1 - targets) * tau_neg).to(q)


def _given(value: float | None, default: float) -> float:
    return default if value is None else value
