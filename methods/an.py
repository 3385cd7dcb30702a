"""AN: unobserved entries are assumed negative."""

from __future__ import annotations

from torch import Tensor

from ssmlbench.api import PartialMethod


class An(PartialMethod):
    """Assume negative: unobserved entries are trained as negatives."""

    name = "an"
    paper = "Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021"

    def unobserved(self, p: Tensor) -> tuple[float, float]:
        return 0.0, 1.0
