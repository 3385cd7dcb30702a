"""The family of ROLE: a matrix of label estimates and the network are each other's targets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from ssmlbench.core.hyperparameters import between, option
from ssmlbench.kit.families.partial import KAPPA, PartialMethod, expected_positives
from ssmlbench.kit.gradient_step import GradientStep
from ssmlbench.kit.heads import Network
from ssmlbench.kit.losses import positives_penalty, soft_loss
from ssmlbench.kit.pools import Batch, Pools


class EstimatedLabelsMethod(PartialMethod):
    """ROLE: a label matrix E = σ(U) with a row for every training row is learnt beside the network.

    Each is made to agree with the other, with what is observed, and with κ positives in a row.
    """

    paper = "Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021"
    differences: ClassVar[tuple[str, ...]] = (
        "known negatives have nl(1 - p) and nl(1 - E), as observed positives have nl(p) and nl(E); "
        "the paper's regime has none",
        "U has Adam without momentum, row by row (β₁ = 0): equal total moves at the cost of the "
        "batch's rows. Released: one Adam over the whole matrix at every step (optimiser=released)",
        "the network has the benchmark's AdamW and one-cycle schedule, and U's learning rate follows it; "
        "released: one Adam for both, at constant rates, without weight decay",
        "κ is the mean over labelled rows in semi; the paper knows it beforehand",
    )

    @dataclass(frozen=True)
    class Config(PartialMethod.Config):
        """κ, and how the label matrix is trained."""

        kappa: float | None = option(None, KAPPA)
        label_lr: float = option(
            10.0,
            "learning rate of U, in multiples of the network's",
            search=between(1.0, 30.0, log=True),
        )
        optimiser: Literal["rows", "released"] = option(
            "rows", "of U: Adam on the batch's rows, or on the whole matrix at every step"
        )

    def setup(self, pools: Pools) -> None:
        """Start U, and the state of its optimiser."""
        super().setup(pools)
        self.kappa = expected_positives(self.config.kappa, pools.labelled)
        # U. A parameter keeps its identity when a run is resumed, as an optimiser needs.
        start = initial_estimates(self.all_observed(pools))
        self.estimates = nn.Parameter(start, requires_grad=False)
        if self.config.optimiser == "rows":
            self.squares = torch.zeros_like(start)
            self.seen = torch.zeros(len(start), device=start.device)
            self.count = torch.zeros((), device=start.device)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Nothing for the trainer's optimiser: U has its own."""
        return []

    def build_optimisers(self, network: Network) -> dict[str, torch.optim.Optimizer]:
        """The Adam over all of U, with optimiser=released."""
        if self.config.optimiser == "rows":
            return {}
        return {"estimates": torch.optim.Adam([self.estimates])}

    def step(
        self, labelled: Batch, unlabelled: Batch | None, update: GradientStep
    ) -> dict[str, Tensor]:
        """One step of the network and one of U, each with the other held constant."""
        logits, observed = self.together(labelled, unlabelled)
        rows = self.positions(labelled, unlabelled)
        estimates = self.estimates.index_select(0, rows).requires_grad_()
        network, labels = agreement(logits, estimates, observed, self.kappa)
        (gradient,) = torch.autograd.grad(labels, estimates)
        update.backward(network)
        self.move_estimates(rows, gradient, self.config.label_lr * update.lr)
        return {"network": network, "estimates": labels}

    @torch.no_grad()
    def move_estimates(self, rows: Tensor, gradient: Tensor, lr: float) -> None:
        """One step of U's optimiser; gradient: B × K, of the batch's rows."""
        if self.config.optimiser == "rows":
            self.count.add_(1)
            adam_rows_(self.estimates, self.squares, self.seen, rows, gradient, self.count, lr)
            return
        optimiser = self.optimisers["estimates"]
        optimiser.param_groups[0]["lr"] = lr
        self.estimates.grad = torch.zeros_like(self.estimates).index_add_(0, rows, gradient)
        optimiser.step()
        self.estimates.grad = None

    def pseudo_labels(self) -> tuple[Tensor, Tensor] | None:
        """The estimates of the unlabelled rows, all trusted."""
        if not self.unlabelled_views:
            return None
        estimated = self.estimates[self.n_labelled :].sigmoid()
        return estimated, torch.ones_like(estimated[:, :1])


def initial_estimates(observed: Tensor) -> Tensor:
    """U: uniform in ±logit(0.6) where unobserved, else ±logit(0.995) by the label. N × K."""
    # Drawn on the CPU: every device starts from the same numbers.
    estimates = torch.rand(observed.shape).to(observed.device)
    estimates.mul_(2).sub_(1).mul_(math.log(0.6 / 0.4))  # in place: N may be a million
    sure = math.log(0.995 / 0.005)
    return estimates.masked_fill_(observed == 1, sure).masked_fill_(observed == 0, -sure)


def agreement(
    logits: Tensor, estimates: Tensor, observed: Tensor, kappa: Tensor
) -> tuple[Tensor, Tensor]:
    """The two halves of ROLE's loss: of the network and of U. All inputs B × K.

    Each is compared with the other's probabilities, which are constants in its gradient.
    """
    p, e = logits.detach().sigmoid(), estimates.detach().sigmoid()
    return half_agreement(logits, e, observed, kappa), half_agreement(estimates, p, observed, kappa)


def half_agreement(logits: Tensor, others: Tensor, observed: Tensor, kappa: Tensor) -> Tensor:
    """½ (loss of the known labels + cross-entropy with the other's probabilities + penalty of κ)."""
    # The loss is linear in its target: a known label and the other's probability are one target.
    weights = 1.0 + (observed >= 0)
    entries = weights * soft_loss(logits, (others + (observed == 1)) / weights)
    return (entries.mean() + positives_penalty(logits, kappa)) / 2


@torch.no_grad()
def adam_rows_(
    weights: Tensor,
    squares: Tensor,
    seen: Tensor,
    rows: Tensor,
    gradient: Tensor,
    count: Tensor,
    lr: float,
    beta: float = 0.999,
    eps: float = 1e-8,
) -> None:
    """Adam with β₁ = 0 on a table of which a step sees a few rows, at the cost of those rows.

    A row without a gradient does not move and its second moment decays, which can wait until it is
    seen again: this is what a pass over the whole table would do. (Momentum would spread the same
    move over the ten steps that follow, in which the row is hardly ever seen.)
    weights, squares: N × K; seen: N, the step at which a row was last seen; gradient: B × K.
    """
    # A row that is twice in a batch gets the sum of its gradients, written twice.
    same = rows[:, None] == rows[None]
    gradient = same.to(gradient) @ gradient
    decay = beta ** (count - seen.index_select(0, rows))
    square = squares.index_select(0, rows).mul_(decay[:, None])
    square.addcmul_(gradient, gradient, value=1 - beta)
    spread = (square / (1 - beta**count)).sqrt_().add_(eps)
    moved = weights.index_select(0, rows).addcdiv_(gradient, spread, value=-lr)
    seen.index_fill_(0, rows, count)
    squares.index_copy_(0, rows, square)
    weights.index_copy_(0, rows, moved)
