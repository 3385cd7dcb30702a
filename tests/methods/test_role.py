"""ROLE: the label matrix, its optimiser and its losses, against the formulas of the paper."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ssmlbench.checks import methods as conformance
from ssmlbench.checks import toy as checks_toy
from ssmlbench.core.hyperparameters import option
from ssmlbench.kit.families.label_estimates import adam_rows_, agreement
from ssmlbench.kit.gradient_step import GradientStep
from ssmlbench.kit.heads import Network
from tests.methods.test_single_positive import FixedBatch, build, method_class, pools


def role_history(name: str, kind: str, **options: Any) -> Any:
    """A short run, with the encoder's weights and the estimates after each epoch."""
    snapshots: list[dict[str, Any]] = []

    class Watched(method_class(name)):  # type: ignore[misc]
        def step(self, labelled: Any, unlabelled: Any, update: Any) -> Any:
            self.network = (update.network,)
            return super().step(labelled, unlabelled, update)

        def start_epoch(self, pools: Any) -> None:
            super().start_epoch(pools)
            if hasattr(self, "network"):
                state = self.network[0].state_dict()
                snapshots.append({k: v.clone() for k, v in state.items()})
                snapshots[-1]["estimates"] = self.estimates.clone()

    Watched.name = name
    config = {**dataclasses.asdict(method_class(name).Config()), **options}
    spec = checks_toy.spec_for(Watched, "semi", epochs=7, config=config)
    checks_toy.train(Watched, checks_toy.toy(kind), spec)
    return snapshots


def test_the_encoder_is_frozen_for_25_of_35_epochs() -> None:
    after = role_history("role_li", "image")  # after epochs 1 to 6 of 7; 5 of them frozen
    encoder = [k for k in after[0] if k.startswith("encoder")]
    assert any("running_mean" in k for k in encoder)
    for key in encoder:
        assert all(torch.equal(after[0][key], after[epoch][key]) for epoch in range(1, 5))
    assert any(not torch.equal(after[4][key], after[5][key]) for key in encoder)
    assert not torch.equal(after[0]["head.weight"], after[1]["head.weight"])
    assert not torch.equal(after[0]["estimates"], after[1]["estimates"])


def test_role_trains_the_encoder_from_the_start() -> None:
    after = role_history("role", "image")
    assert any(not torch.equal(after[0][k], after[1][k]) for k in after[0] if "encoder" in k)


def test_role_moves_the_estimates_of_the_rows_it_saw_and_no_others() -> None:
    labelled, unlabelled = torch.tensor([[1, 0], [0, 1]]), torch.full((3, 2), -1)
    method = build("role", 2)
    method.setup(pools(labelled, unlabelled))
    before = method.estimates.clone()
    update = SimpleNamespace(lr=0.01, backward=lambda loss: loss.backward())
    logits = torch.zeros(1, 2, requires_grad=True)
    method.step(
        FixedBatch(torch.tensor([1]), labelled[1:], logits),
        FixedBatch(torch.tensor([2]), unlabelled[2:], logits),
        update,
    )
    moved = (method.estimates != before).any(1)
    assert moved.tolist() == [False, True, False, False, True]
    # The first step of Adam is one learning rate long: 10 × 0.01.
    assert (method.estimates - before)[4].abs().tolist() == pytest.approx([0.1, 0.1], rel=1e-3)


def test_the_released_optimiser_is_one_adam_over_the_whole_matrix() -> None:
    labelled, unlabelled = torch.tensor([[1, 0], [0, 1]]), torch.full((3, 2), -1)
    method = build("role", 2, optimiser="released")
    method.setup(pools(labelled, unlabelled))
    assert method.parameter_groups(0.01) == []
    network = Network(nn.Identity(), nn.Identity(), method.build_head(4))
    method.optimisers = method.build_optimisers(network)
    table = method.estimates.clone().requires_grad_()
    adam = torch.optim.Adam([table], lr=10 * 0.01)
    logits = torch.tensor([[0.3, -0.2]], requires_grad=True)
    for row in (1, 0, 1):
        batch: Any = FixedBatch(torch.tensor([row]), labelled[row : row + 1], logits)
        method.step(batch, None, GradientStep(network, [], lr=0.01))
        adam.zero_grad()
        agreement(logits.detach(), table[row : row + 1], batch.observed, method.kappa)[1].backward()
        adam.step()
    torch.testing.assert_close(method.estimates.detach(), table.detach())
    # A row that is not seen again drifts on with its momentum, as in the released code.
    assert method.estimates.grad is None


@pytest.mark.parametrize("regime", ["semi", "single-positive"])
def test_the_released_optimisers_state_survives_a_kill(regime: str) -> None:
    role = method_class("role")

    class Released(role):  # type: ignore[misc, valid-type]
        name = "released"

        @dataclasses.dataclass(frozen=True)
        class Config(role.Config):  # type: ignore[name-defined, misc]
            optimiser: str = option("released", "as released")

    conformance.survives_a_kill(Released, regime, "vector")


def test_a_table_of_many_rows_costs_a_step_what_a_table_of_few_does() -> None:
    # Nothing of the whole table's size is made: the step touches the batch's rows in place.
    sizes = []

    class Counting(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            if isinstance(out, Tensor) and not func._schema.is_mutable:
                sizes.append(out.numel())
            return out

    n, k = 80_000, 80
    table, squares, seen = torch.zeros(n, k), torch.zeros(n, k), torch.zeros(n)
    with Counting():
        rows, gradient = torch.arange(64), torch.ones(64, k)
        adam_rows_(table, squares, seen, rows, gradient, torch.tensor(1.0), 0.01)
    assert max(sizes) <= 64 * k
