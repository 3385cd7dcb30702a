"""HML: labels as directions on a hypersphere, with an angular margin inside the sigmoid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ssmlbench.api import (
    Batch,
    Method,
    Pools,
    angles,
    bce,
    between,
    option,
    pooled_class_aware_labels,
)


class Hml(Method):
    """A cosine head with a margin: p = σ(s cos(θ + m)), both in training and at test time."""

    name = "hml"
    paper = "Ke et al., Hyperspherical Learning in Multi-Label Classification, ECCV 2022"
    regimes = {
        *("semi", "single-positive", "single-positive-negatives"),
        *("partial-positive", "partial", "full"),
    }
    head = "cosine"
    differences = (
        "unobserved labels are taken as negative, as in the paper",
        "there is no released code (its repository is a README)",
        "not in the paper: unlabelled rows. Under semi only labelled rows train (pseudo=none); "
        "pseudo=cap adds CAP's pseudo-labels with HML's loss",
        "not stated, chosen here: mean over rows of the sum over labels, classifier initialised "
        "uniformly in ±1/√L, s* and m* start at s and m, s* kept positive by a softplus, no weight "
        "decay on either",
        "not stated, chosen here: s* and m* learn from the adaptive loss alone, not from the BCE",
        "s* and m* (adaptive=true) are used as they are learnt; the classifier's weights that score test "
        "rows are averaged over steps, as for every method (the paper averages nothing)",
        "a label whose count int(π_k N_u) is 0 gets no pseudo-positive (pseudo=cap; CAP's released code: "
        "all rows)",
        "θ + m may pass π, where the score turns back up: the paper has no guard",
        "not stated, chosen here: with the margin on one side only, test scores have none",
    )
    ablations = {
        "linear head, no margin": {"head": "linear"},  # the paper's Table 4: no HL, no AL
        "adaptive scale and margin": {"adaptive": True},
        "no margin": {"margin": 0.0},  # Table 5, with the two below
        "margin on positives only": {"margin_on": "positives"},
        "margin on negatives only": {"margin_on": "negatives"},
    }

    @dataclass(frozen=True)
    class Config(Method.Config):
        scale: float = option(
            20.0,
            "s: scale of the cosines; the start of s* if adaptive",
            search=between(5.0, 40.0, log=True),
        )
        margin: float = option(
            0.3,
            "m: angular margin in radians; the start of m* if adaptive",
            search=between(0.0, 0.5),
        )
        margin_on: Literal["both", "positives", "negatives"] = option(
            "both", "the training entries that the margin shifts"
        )
        head: Literal["cosine", "linear"] = option(
            "cosine", "linear: plain logits and BCE, without scale and margin"
        )
        adaptive: bool = option(False, "learn s* and m* with the adaptive loss")
        pseudo: Literal["none", "cap"] = option("none", "labels of unlabelled rows (semi only)")
        positive_share: float = option(1.0, "η⁺ of CAP's rule (pseudo=cap)")
        negative_share: float = option(0.998, "η⁻ of CAP's rule (pseudo=cap)")
        unlabelled_weight: float = option(1.0, "λ: weight of the unlabelled term (pseudo=cap)")

    def __init__(self, config: Any, labels: int):
        super().__init__(config, labels)
        if config.pseudo == "none":
            self.unlabelled_views = ()
        self.angular = config.head == "cosine"
        if self.angular and config.adaptive:
            before_softplus = config.scale + math.log(-math.expm1(-config.scale))
            self.free_scale = nn.Parameter(torch.tensor(before_softplus))
            self.free_margin = nn.Parameter(torch.tensor(config.margin))

    @classmethod
    def head_of(cls, config: Any) -> str:
        head: str = config.head
        return head

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        return [{**group, "weight_decay": 0.0} for group in super().parameter_groups(lr)]

    def start_epoch(self, pools: Pools) -> None:
        if self.config.pseudo == "cap":
            self.targets, self.trust, tied = pooled_class_aware_labels(
                self.score_logits(pools.unlabelled.logits(model="ema", view="weak")),
                pools.labelled.prior,
                self.config.positive_share,
                self.config.negative_share,
            )
            self.diagnostics = {"tied_positives": tied}

    def loss(self, labelled: Batch, unlabelled: Batch | None) -> dict[str, Tensor]:
        cosines = labelled.logits("strong")
        targets = (labelled.observed == 1).to(cosines)
        trust = torch.ones_like(targets)
        terms = {"labelled": self.row_loss(cosines, targets, trust)}
        if unlabelled is not None:
            more = unlabelled.logits("strong")
            more_targets, more_trust = self.targets[unlabelled.rows], self.trust[unlabelled.rows]
            term = self.row_loss(more, more_targets, more_trust)
            terms["unlabelled"] = self.config.unlabelled_weight * term
            cosines = torch.cat([cosines, more])
            targets = torch.cat([targets, more_targets])
            trust = torch.cat([trust, more_trust])
        if self.angular and self.config.adaptive:
            scale, margin = self.scale_and_margin()
            margins = self.entry_margins(margin, targets)
            terms["adaptive"] = adaptive_loss(cosines, targets, scale, margins, trust)
        return terms

    def row_loss(self, cosines: Tensor, targets: Tensor, trust: Tensor) -> Tensor:
        scale, margin = (value.detach() for value in self.scale_and_margin())
        logits = cosines
        if self.angular:
            logits = margin_logits(cosines, scale, self.entry_margins(margin, targets))
        return (trust * bce(logits, targets)).sum(1).mean()

    def entry_margins(self, margin: Tensor, targets: Tensor) -> Tensor:
        """The margin m of the training entries that it shifts, 0 for the others."""
        sides = {"positives": targets, "negatives": 1 - targets}
        side = sides.get(self.config.margin_on)
        return margin if side is None else margin * side

    def scale_and_margin(self) -> tuple[Tensor, Tensor]:
        if self.angular and self.config.adaptive:
            return F.softplus(self.free_scale), self.free_margin
        return torch.tensor(self.config.scale), torch.tensor(self.config.margin)

    def scores(self, logits: Tensor) -> Tensor:
        return self.score_logits(logits).sigmoid()

    def score_logits(self, outputs: Tensor) -> Tensor:
        """The logits of the scores. Ranks are of these: many large scores round to the same number."""
        if not self.angular:
            return outputs
        scale, margin = self.scale_and_margin()
        if self.config.margin_on != "both":
            margin = torch.zeros_like(margin)
        return margin_logits(outputs, scale, margin)


def margin_logits(cosines: Tensor, s: Tensor, m: Tensor) -> Tensor:
    """The logits s cos(θ + m)."""
    return s * (angles(cosines.float()) + m).cos()


def adaptive_loss(cosines: Tensor, targets: Tensor, s: Tensor, m: Tensor, trust: Tensor) -> Tensor:
    """|Σ_pos (1 - p) - Σ_neg p| over the mini-batch; its gradient reaches s and m only."""
    z = margin_logits(cosines.detach(), s, m)
    missing = (trust * targets * (-z).sigmoid()).sum()
    excess = (trust * (1 - targets) * z.sigmoid()).sum()
    return (missing - excess).abs()
