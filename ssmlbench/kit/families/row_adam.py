"""Adam on a table of which each step sees a few rows: ROLE's label matrix."""

from __future__ import annotations

import torch
from torch import Tensor


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
