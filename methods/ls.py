"""LS: assumed negatives with label smoothing."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ssmlbench.api import PartialMethod, between, option


class Ls(PartialMethod):
    """Observed positives have the target 1 - ε, unobserved entries ε."""

    name = "ls"
    paper = "Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021"
    differences = (
        "the targets are 1 - ε and ε as released, not 1 - ε/2 and ε/2",
        "known negatives are not smoothed; the paper's regime has none",
    )

    @dataclass(frozen=True)
    class Config(PartialMethod.Config):
        epsilon: float = option(
            0.1, "ε: how far targets are moved from 1 and 0", search=between(0.02, 0.3, log=True)
        )

    def positive(self) -> float:
        epsilon: float = self.config.epsilon
        return 1 - epsilon

    def unobserved(self, p: Tensor) -> tuple[float, float]:
        return self.config.epsilon, 1.0
