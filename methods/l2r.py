"""L2R: assumed negatives, with the classifier's weights kept small in the L2 norm."""

from __future__ import annotations

from torch import Tensor

from ssmlbench.api import PenalisedMethod


class L2r(PenalisedMethod):
    """AN plus λ ‖W‖₂² of the classifier's weights W."""

    name = "l2r"

    def norm(self, weight: Tensor) -> Tensor:
        """‖W‖₂²: the sum of squares."""
        return weight.square().sum()
