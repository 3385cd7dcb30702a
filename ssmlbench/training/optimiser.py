"""The optimiser and the learning-rate schedule of a training phase."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler

from ssmlbench.core.spec import RunSpec

LARGEST_DECAY = 50.0
"""Upper bound of the relative decay: lr × decay must stay well below 1, or a step undoes all learning."""


def network_groups(
    spec: RunSpec, head: str, weights: Sequence[nn.Parameter], width: int, rows: int
) -> list[dict[str, Any]]:
    """The network's weights as optimiser groups. With `--relative-decay` c, matrices decay by c · D / n.

    head: the method's kind of head. width: D, of the encoder's features. rows: n, that the phase trains
    on: the fewer there are, the smaller the weights should stay. A cosine head ignores the length of
    weights, so that its networks have no such decay.
    """
    if not spec.relative_decay or head == "cosine":
        return [{"params": weights, "lr": spec.lr}]
    decay = min(spec.relative_decay * width / max(rows, 1), LARGEST_DECAY) + spec.weight_decay
    matrices = [weight for weight in weights if weight.ndim > 1]
    others = [weight for weight in weights if weight.ndim <= 1]
    return [
        {"params": matrices, "lr": spec.lr, "weight_decay": decay},
        *([{"params": others, "lr": spec.lr}] if others else []),
    ]


def adamw(spec: RunSpec, groups: list[dict[str, Any]]) -> torch.optim.AdamW:
    """The optimiser of a phase."""
    return torch.optim.AdamW(groups, lr=spec.lr, weight_decay=spec.weight_decay, fused=True)


def one_cycle(optimiser: torch.optim.Optimizer, steps: int) -> lr_scheduler.OneCycleLR:
    """The schedule of a phase of `steps` steps: each group rises to its learning rate, then falls."""
    steps = max(steps, 2)
    with warnings.catch_warnings():  # torch warns unless optimiser.step() was called before
        warnings.simplefilter("ignore")
        return lr_scheduler.OneCycleLR(
            optimiser,
            max_lr=[group["lr"] for group in optimiser.param_groups],
            total_steps=steps,
            pct_start=max(0.2, 1.5 / steps),  # torch divides by the length of the rise
        )
