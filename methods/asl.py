"""ASL: the asymmetric loss. Unobserved entries are assumed negative."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ssmlbench.api import PartialMethod, asymmetric_loss, between, option


class Asl(PartialMethod):
    """Asymmetric loss: easy negatives are discounted more than easy positives, the easiest ignored."""

    name = "asl"
    paper = "Ridnik et al., Asymmetric Loss For Multi-Label Classification, ICCV 2021"
    differences = (
        "(γ⁻, γ⁺, clip) is the released class's (4, 1, 0.05); CAP uses γ⁺ = 0",
        "the focusing weight is detached and the mean is taken over B·K (released: a sum)",
        "ASL has log p; the released loss has log max(p, 1e-8), which gives an observed positive with a "
        "smaller p no gradient",
        "known negatives have ASL too: it is a loss of true labels",
    )

    @dataclass(frozen=True)
    class Config(PartialMethod.Config):
        gamma_negative: float = option(
            4.0, "γ⁻: how much easy negatives are discounted", search=between(1.0, 6.0)
        )
        gamma_positive: float = option(
            1.0, "γ⁺: how much easy positives are discounted", search=between(0.0, 2.0)
        )
        clip: float = option(0.05, "probability shift of negatives", search=between(0.0, 0.1))

    def entry_loss(self, logits: Tensor, observed: Tensor) -> Tensor:
        config = self.config
        return asymmetric_loss(
            logits, observed == 1, config.gamma_negative, config.gamma_positive, config.clip
        )
