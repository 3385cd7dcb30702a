"""AN: what is not observed is assumed negative."""

from __future__ import annotations

from torch import Tensor

from ssmlbench.partial import PartialMethod, nl_negative


class An(PartialMethod):
    """Unobserved entries are learnt as negatives."""

    name = "an"
    paper = "Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021"

    def unobserved(self, logits: Tensor) -> Tensor:
        return nl_negative(logits)
