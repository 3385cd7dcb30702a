"""L1R: assumed negatives, with the classifier's weights kept small in the L1 norm."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ssmlbench.method import option
from ssmlbench.partial import PartialMethod, nl_negative


class L1r(PartialMethod):
    """AN plus λ ‖W‖₁ of the classifier's weights W."""

    name = "l1r"
    paper = "a baseline of Zhou et al., Acknowledging the Unknown […], ECCV 2022"
    differences = (
        "neither the regularised parameters nor λ are stated: the classifier's weights without its "
        "bias, λ from a grid of 1e-6 to 1e-3",
        "the trainer's decoupled weight decay is there beside it, as for every method",
    )

    @dataclass(frozen=True)
    class Config(PartialMethod.Config):
        penalty: float = option(1e-5, "λ: weight of the penalty, ‖W‖₁")

    def unobserved(self, logits: Tensor) -> Tensor:
        return nl_negative(logits)

    def terms(self, logits: Tensor, observed: Tensor) -> dict[str, Tensor]:
        weights = self.config.penalty * norm(self.classifier.weight)
        return {**super().terms(logits, observed), "weights": weights}


def norm(weight: Tensor) -> Tensor:
    """‖W‖₁: the sum of absolute values."""
    return weight.abs().sum()
