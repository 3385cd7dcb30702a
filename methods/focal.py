"""Focal loss: easy entries count less. Unobserved entries are assumed negative."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ssmlbench.api import PartialMethod, between, option


class Focal(PartialMethod):
    """Focal loss: the cross-entropy of an entry is weighted by its error to the power γ."""

    name = "focal"
    paper = "Lin et al., Focal Loss for Dense Object Detection, ICCV 2017"
    differences = (
        "no α weight; the gradient goes through the focusing weight (ASL(γ, γ, 0) has equal values "
        "but stops it there)",
        "known negatives have the focal loss too: it is a loss of true labels",
    )

    @dataclass(frozen=True)
    class Config(PartialMethod.Config):
        gamma: float = option(
            2.0, "γ: how much easy entries are discounted", search=between(0.5, 5.0)
        )

    def entry_loss(self, logits: Tensor, observed: Tensor) -> Tensor:
        # The loss of a negative is that of a positive with the opposite logit.
        return focal(torch.where(observed == 1, logits, -logits), self.config.gamma)


def focal(logits: Tensor, gamma: float) -> Tensor:
    """-(1 - p)^γ log p; the power through its logarithm has a finite slope for every γ."""
    return -(gamma * F.logsigmoid(-logits)).exp() * F.logsigmoid(logits)
