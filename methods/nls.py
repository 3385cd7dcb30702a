"""N-LS: label smoothing of the assumed negatives only."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ssmlbench.api import PartialMethod, between, option


class Nls(PartialMethod):
    """Unobserved entries have the target ε; observed positives keep 1."""

    name = "nls"
    paper = "a baseline of Zhou et al., Acknowledging the Unknown […], ECCV 2022"
    differences = (
        "no source gives the formula: LS with its positives left at 1",
        "known negatives are not smoothed; the paper's regime has none",
    )

    @dataclass(frozen=True)
    class Config(PartialMethod.Config):
        epsilon: float = option(
            0.1, "ε: target of unobserved entries", search=between(0.02, 0.3, log=True)
        )

    def unobserved(self, p: Tensor) -> tuple[float, float]:
        return self.config.epsilon, 1.0
