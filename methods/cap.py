"""CAP: class-distribution-aware pseudo-labels for semi-supervised multi-label learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from ssmlbench.api import (
    POOL_RATIO,
    Batch,
    Method,
    Pools,
    asymmetric_loss,
    bce,
    between,
    choice,
    option,
    pool_weight,
    pooled_class_aware_labels,
)


class Cap(Method):
    """Each label takes the best-scored π_k of the unlabelled rows as positive, π_k from labelled rows."""

    name = "cap"
    paper = "Xie et al., Class-Distribution-Aware Pseudo-Labeling for SSMLL, NeurIPS 2023"
    regimes = {"semi"}
    differences = (
        "losses are summed, so that each pool weighs as many as its rows: 32 + 64 rows are 1 : 2; the "
        "released batches at π = 0.05 are 4 + 60, 1 : 15 (pool_ratio=15)",
        "ASL has log p; the released loss has log max(p, 1e-8), which gives an observed positive with a "
        "smaller p no gradient",
        "a label whose count int(π_k N_u) is 0 gets no pseudo-positive (released: all rows)",
        "rows are shuffled, and nothing is selected on the reported set (released: the opposite)",
        "after warm-up the averaged weights start from the raw ones, as released on COCO and VOC (on "
        "NUS-WIDE: from the averaged ones)",
    )

    ablations = {
        "BCE instead of ASL": {"loss": "bce"},
        "half of the pseudo-positives": {"positive_share": 0.5},
        "every pseudo-negative": {"negative_share": 1.0},
    }

    @dataclass(frozen=True)
    class Config(Method.Config):
        loss: Literal["asl", "bce"] = option(
            "asl", "entry loss on both pools", search=choice("asl", "bce")
        )
        gamma_negative: float = option(
            4.0, "γ⁻ of ASL: how much easy negatives are discounted", search=between(1.0, 6.0)
        )
        gamma_positive: float = option(0.0, "γ⁺ of ASL")
        clip: float = option(0.05, "ASL's probability shift of negatives")
        positive_share: float = option(
            1.0, "η⁺: the part of a label's pseudo-positives trusted", search=between(0.5, 1.0)
        )
        negative_share: float = option(0.998, "η⁻: the part of its pseudo-negatives trusted")
        unlabelled_weight: float = option(
            1.0, "λ: weight of the unlabelled term", search=between(0.1, 10.0, log=True)
        )
        pool_ratio: float | None = option(None, POOL_RATIO)

    def start_epoch(self, pools: Pools) -> None:
        self.targets, self.trust, tied = pooled_class_aware_labels(
            pools.unlabelled.logits(model="ema", view="weak"),  # ranks: logits will do
            pools.labelled.prior,
            self.config.positive_share,
            self.config.negative_share,
        )
        self.diagnostics = {"tied_positives": tied}

    def loss(self, labelled: Batch, unlabelled: Batch | None) -> dict[str, Tensor]:
        terms = {"labelled": self.entry_loss(labelled.logits("strong"), labelled.observed).sum()}
        if unlabelled is not None:
            targets, trust = self.targets[unlabelled.rows], self.trust[unlabelled.rows]
            entries = self.entry_loss(unlabelled.logits("strong"), targets)
            weight = self.config.unlabelled_weight
            weight *= pool_weight(self.config.pool_ratio, labelled, unlabelled)
            terms["unlabelled"] = weight * (trust * entries).sum()
        return terms

    def entry_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        config = self.config
        if config.loss == "bce":
            return bce(logits, targets)
        return asymmetric_loss(
            logits, targets, config.gamma_negative, config.gamma_positive, config.clip
        )
