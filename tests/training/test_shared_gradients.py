"""The gradients of a step that several processes share, without the processes."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ssmlbench.training.processes import _with_summed_gradients


def test_gradients_of_processes_are_summed_and_not_averaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Adam hides a factor: scores alone would not show it. Three processes with equal rows:
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: tensor.mul_(3))
    monkeypatch.setattr(dist, "get_world_size", lambda: 3)
    rows, encoder = torch.randn(5, 4), nn.Linear(4, 2)
    gradients = []
    for shared in (encoder, _with_summed_gradients(encoder)):
        encoder.zero_grad()
        shared(rows).square().sum().backward()
        gradients.append([weight.grad.clone() for weight in encoder.parameters()])  # type: ignore[union-attr]
    alone, summed = gradients
    for own, total in zip(alone, summed, strict=True):
        assert torch.allclose(total, 3 * own)
