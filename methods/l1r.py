"""L1R: assumed negatives, with the classifier's weights kept small in the L1 norm."""

from __future__ import annotations

from torch import Tensor

from ssmlbench.api import PenalisedMethod


class L1r(PenalisedMethod):
    """AN plus λ ‖W‖₁ of the classifier's weights W."""

    name = "l1r"

    def norm(self, weight: Tensor) -> Tensor:
        """‖W‖₁: the sum of absolute values."""
        return weight.abs().sum()
