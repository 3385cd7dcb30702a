"""BCE on known labels: unknown entries cost nothing, and the mean is over all entries."""

from __future__ import annotations

import math

import pytest
import torch

from ssmlbench.core.paths import builtin_root
from ssmlbench.kit.pools import Batch, Forward
from ssmlbench.plugins.loader import load_file

module = load_file(builtin_root() / "methods" / "bce.py")


def loss_of(logits: torch.Tensor, observed: list[list[int]]) -> torch.Tensor:
    forward = Forward(lambda x: {"logits": x}, {("labelled", "strong"): logits})
    known = torch.tensor(observed, dtype=torch.int8)
    batch = Batch("labelled", torch.arange(len(logits)), known, forward, forward)
    terms = module.Bce(module.Bce.Config(), logits.shape[1]).loss(batch, None)
    return terms["labelled"]


def test_an_unknown_entry_costs_nothing_and_moves_nothing() -> None:
    logits = torch.tensor([[1.0, -2.0, 0.5]], requires_grad=True)
    loss = loss_of(logits, [[1, 0, -1]])
    expected = (math.log1p(math.exp(-1.0)) + math.log1p(math.exp(-2.0)) + 0) / 3
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-5)
    loss.backward()
    assert logits.grad is not None
    assert float(logits.grad[0, 2]) == 0
    assert (logits.grad[0, :2] != 0).all()


def test_with_every_label_known_it_is_torch_s_own() -> None:
    logits = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    observed = [[1, 0], [0, 1]]
    expected = torch.nn.BCEWithLogitsLoss()(logits, torch.tensor(observed).float())
    assert torch.equal(loss_of(logits, observed), expected)
