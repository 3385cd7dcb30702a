"""WAN: assumed negatives together weigh as much as one positive."""

from __future__ import annotations

from torch import Tensor

from ssmlbench.api import PartialMethod


class Wan(PartialMethod):
    """Unobserved entries are trained as negatives, each with weight 1 / (K - 1)."""

    name = "wan"
    paper = "Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021"
    differences = ("known negatives weigh 1; the paper's regime has none",)

    def unobserved(self, p: Tensor) -> tuple[float, float]:
        return 0.0, 1 / max(self.labels - 1, 1)
