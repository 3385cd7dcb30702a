"""LL-Ct: unobserved entries with large losses are corrected for the step."""

from __future__ import annotations

from torch import Tensor

from ssmlbench.api import LargeLossMethod, bce, large_losses


class Llct(LargeLossMethod):
    """Assumed negatives with the largest losses, more in each epoch, are trained as positives."""

    name = "llct"

    def entry_loss(self, logits: Tensor, observed: Tensor) -> Tensor:
        positive = observed == 1
        doubted, _ = large_losses(bce(logits, positive), observed, self.rate)
        return bce(logits, positive | doubted)
