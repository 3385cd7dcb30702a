"""EntMin: unobserved entries are pushed to either side, whichever is nearer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ssmlbench.api import PartialMethod, between, option


class Entmin(PartialMethod):
    """The entropy of unobserved entries is minimised: EM with the opposite sign."""

    name = "entmin"
    paper = "a baseline of Zhou et al., Acknowledging the Unknown […], ECCV 2022"
    differences = (
        "the weight of the entropy is not stated: α as in EM on VOC",
        "known negatives have nl(1 - p); the paper's regime has none",
    )

    @dataclass(frozen=True)
    class Config(PartialMethod.Config):
        alpha: float = option(0.2, "α: weight of the entropy", search=between(0.01, 0.4, log=True))

    def unobserved(self, p: Tensor) -> tuple[Tensor, float]:
        # The soft cross-entropy with its own probability as its target is the entropy.
        return p, self.config.alpha
