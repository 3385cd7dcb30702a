"""The base of `em` and `em_apl`: an unannotated entry is unknown, and its entropy is raised."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ssmlbench.core.hyperparameters import between, option
from ssmlbench.kit.families.partial import PartialMethod


class EntropyMethod(PartialMethod):
    """Known labels cost as usual, an unknown one -α times its prediction's entropy."""

    @dataclass(frozen=True)
    class Config(PartialMethod.Config):
        """The weight of the entropy, and what counts as unknown."""

        alpha: float = option(
            0.2,
            "α: weight of the entropy (VOC .2, COCO and NUS .1, CUB .01)",
            search=between(0.01, 0.4, log=True),
        )
        literal: bool = option(False, "treat known negatives as unknown too")

    def unobserved(self, p: Tensor) -> tuple[Tensor, float]:
        """An entry's own probability as its target, weighted -α: minus its entropy."""
        # Its own probability as its target: p nl(p) + (1 - p) nl(1 - p), through both factors.
        return p, -self.config.alpha

    def entry_loss(self, logits: Tensor, observed: Tensor) -> Tensor:
        """The losses of known entries and the entropies of the others, B × K."""
        return super().entry_loss(logits, self.known(observed))

    def known(self, observed: Tensor) -> Tensor:
        """The observed labels as this run reads them."""
        return torch.where(observed == 1, observed, -1) if self.config.literal else observed
