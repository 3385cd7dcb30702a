"""LL-R: unobserved entries with large losses are rejected."""

from __future__ import annotations

from torch import Tensor

from ssmlbench.losses import bce
from ssmlbench.partial import LargeLossMethod, large_losses


class Llr(LargeLossMethod):
    """Assumed negatives with the largest losses, more each epoch, are left out."""

    name = "llr"
    paper = (
        "Kim et al., Large Loss Matters in Weakly Supervised Multi-Label Classification, CVPR 2022"
    )
    differences = (
        "Δ_rel is stretched over the run: its last epoch doubts what the paper's tenth does "
        "(delta_epochs=none: Δ_rel per epoch as it stands)",
        "a threshold of 0, which would doubt every entry, doubts no entry whose loss is 0",
    )

    def entry_loss(self, logits: Tensor, observed: Tensor) -> Tensor:
        losses = bce(logits, observed == 1)
        doubted, _ = large_losses(losses, observed, self.rate)
        return losses.masked_fill(doubted, 0.0)
