"""LL-Ct: unobserved entries with large losses are corrected for the step."""

from __future__ import annotations

from torch import Tensor

from ssmlbench.losses import bce
from ssmlbench.partial import LargeLossMethod, large_losses


class Llct(LargeLossMethod):
    """Assumed negatives with the largest losses, more each epoch, are learnt as positives."""

    name = "llct"
    paper = (
        "Kim et al., Large Loss Matters in Weakly Supervised Multi-Label Classification, CVPR 2022"
    )
    differences = (
        "Δ_rel is stretched over the run: its last epoch doubts what the paper's tenth does "
        "(delta_epochs=none: Δ_rel per epoch as it stands)",
        "a threshold of 0, which would doubt every entry, doubts no entry whose loss is 0",
    )

    def entry_loss(self, logits: Tensor, observed: Tensor) -> Tensor:
        positive = observed == 1
        doubted, _ = large_losses(bce(logits, positive), observed, self.rate)
        return bce(logits, positive | doubted)
