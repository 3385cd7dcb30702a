"""EPR: unobserved entries must only be positive as often as expected."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ssmlbench.api import KAPPA, PartialMethod, Pools, expected_positives, option, positives_penalty


class Epr(PartialMethod):
    """Expected positives: unobserved entries cost nothing; the mean positives of a batch go to κ."""

    name = "epr"
    paper = "Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021"
    differences = (
        "κ is the mean over labelled rows in semi; the paper knows it beforehand",
        "known negatives have nl(1 - p); the paper's regime has none",
    )

    @dataclass(frozen=True)
    class Config(PartialMethod.Config):
        kappa: float | None = option(None, KAPPA)

    def setup(self, pools: Pools) -> None:
        super().setup(pools)
        self.kappa = expected_positives(self.config.kappa, pools.labelled)

    def unobserved(self, p: Tensor) -> tuple[float, float]:
        return 0.0, 0.0

    def terms(self, logits: Tensor, observed: Tensor) -> dict[str, Tensor]:
        penalty = positives_penalty(logits, self.kappa)
        return {**super().terms(logits, observed), "expected_positives": penalty}
