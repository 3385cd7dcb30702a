"""LL-Cp: unobserved entries with large losses become positives permanently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ssmlbench.api import Batch, LargeLossMethod, Pools, bce, large_losses, option


class Llcp(LargeLossMethod):
    """In each step the assumed negatives with the largest losses become positives permanently."""

    name = "llcp"
    differences = (
        *LargeLossMethod.differences,
        "the released test for this scheme compares strings by identity, which a name from the "
        "command line fails: the run is then LL-Ct's",
        "labels are kept where the loss is above t, which keeps none where k = 1; kept=reached keeps "
        "all that are corrected",
    )

    @dataclass(frozen=True)
    class Config(LargeLossMethod.Config):
        kept: Literal["reached", "above"] = option(
            "above", "which corrected labels stay: u > t, or u ≥ t"
        )

    def doubted_share(self, epoch: int, epochs: int) -> float:
        return self.delta(epochs) if epoch > 1 else 0.0

    def setup(self, pools: Pools) -> None:
        super().setup(pools)
        self.corrected = torch.zeros_like(self.all_observed(pools), dtype=torch.bool)

    def loss(self, labelled: Batch, unlabelled: Batch | None) -> dict[str, Tensor]:
        logits, observed = self.together(labelled, unlabelled)
        rows = self.positions(labelled, unlabelled)
        observed = observed.masked_fill(self.corrected[rows], 1)
        positive = observed == 1
        losses = bce(logits, positive)
        doubted, t = large_losses(losses, observed, self.rate)
        self.corrected[rows] |= doubted if self.config.kept == "reached" else doubted & (losses > t)
        return {"entries": bce(logits, positive | doubted).mean()}

    def pseudo_labels(self) -> tuple[Tensor, Tensor] | None:
        if not self.unlabelled_views:
            return None
        corrected = self.corrected[self.n_labelled :].float()
        return corrected, torch.ones_like(corrected)
