"""LL-R: unobserved entries with large losses are rejected."""

from __future__ import annotations

from torch import Tensor

from ssmlbench.api import LargeLossMethod, bce, large_losses


class Llr(LargeLossMethod):
    """Assumed negatives with the largest losses, more in each epoch, are left out."""

    name = "llr"

    def entry_loss(self, logits: Tensor, observed: Tensor) -> Tensor:
        losses = bce(logits, observed == 1)
        doubted, _ = large_losses(losses, observed, self.rate)
        return losses.masked_fill(doubted, 0.0)
