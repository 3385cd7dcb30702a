"""One gradient step of a method: weights that are moved for a second pass."""

from __future__ import annotations

import torch
from torch import nn

from ssmlbench.kit.gradient_step import GradientStep


def test_a_pass_with_moved_weights_leaves_weights_and_statistics_as_they_were() -> None:
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2, momentum=0.3))
    rows = torch.randn(6, 3)
    network(rows)
    before = [value.clone() for value in (*network.parameters(), *network.buffers())][:-1]
    parameters = list(network.parameters())
    update = GradientStep(network, parameters, None)
    with update.moved([torch.ones_like(p) for p in parameters]):
        assert not torch.equal(parameters[0], before[0])
        network(rows + 1)
    after = [*network.parameters(), *network.buffers()][:-1]  # without the count of batches
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))
    network(rows + 1)
    assert not torch.equal(network[1].running_mean, before[-2])  # counted again  # type: ignore[arg-type]
