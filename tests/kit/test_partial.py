"""What methods for partial labels share: losses by code, doubted entries, Adam row by row."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmlbench.kit.families.label_estimates import adam_rows_, agreement, initial_estimates
from ssmlbench.kit.families.large_loss import LargeLossMethod, large_losses
from ssmlbench.kit.families.partial import expected_positives
from ssmlbench.kit.losses import bce, coded_loss, positives_penalty, soft_loss


def test_the_logarithm_is_bounded_where_a_probability_ends() -> None:
    logits, ones = torch.tensor([100.0, 0.0, -100.0]), torch.ones(3)
    bounded = [-math.log(1.00001), -math.log(0.50001), -math.log(1e-5)]
    assert soft_loss(logits, ones).tolist() == pytest.approx(bounded, rel=1e-2)
    assert soft_loss(-logits, 0 * ones).tolist() == pytest.approx(bounded, rel=1e-2)


def test_a_soft_target_weighs_the_two_logarithms() -> None:
    # p = 1/2 and 3/4: nl(1/2) whatever the target, and 0.2 nl(3/4) + 0.8 nl(1/4).
    losses = soft_loss(torch.tensor([0.0, math.log(3)]), torch.tensor([0.2, 0.2]))
    mixed = -0.2 * math.log(0.75001) - 0.8 * math.log(0.25001)
    assert losses.tolist() == pytest.approx([-math.log(0.50001), mixed], rel=1e-5)


def test_a_small_probability_of_being_negative_is_not_rounded_away() -> None:
    # 1 - σ(14) = 8.3e-7 has lost most of its bits in float32 when it is made by subtraction.
    exact = -math.log(1 / (1 + math.exp(14)) + 1e-5)
    assert soft_loss(torch.tensor(14.0), torch.tensor(0.0)).item() == pytest.approx(exact, rel=1e-6)


def test_each_entry_takes_the_target_and_weight_of_its_code() -> None:
    # p = 3/4 everywhere; the unobserved entry has the target 1/2 and the weight 3.
    observed = torch.tensor([[1, 0, -1]], dtype=torch.int8)
    logits = torch.full((1, 3), math.log(3))
    entries = coded_loss(logits.sigmoid(), logits, observed, target=0.5, weight=3.0)
    yes, no = -math.log(0.75001), -math.log(0.25001)
    assert entries[0].tolist() == pytest.approx([yes, no, 3 * (yes + no) / 2], rel=1e-5)


# ------------------------------------------------------------------------------- κ


def test_kappa_is_the_users_or_the_mean_number_of_positives() -> None:
    pool = SimpleNamespace(prior=torch.tensor([0.5, 0.25], dtype=torch.float64))
    assert expected_positives(None, pool).item() == 0.75
    assert expected_positives(1.5, pool).item() == 1.5


def test_the_penalty_is_zero_where_the_expected_number_of_positives_is_met() -> None:
    logits = torch.zeros(4, 3)  # 1.5 expected positives a row
    assert positives_penalty(logits, torch.tensor(1.5)).item() == 0
    assert positives_penalty(logits, torch.tensor(0.0)).item() == pytest.approx(1.5**2 / 9)


# ------------------------------------------------------------------------------- large losses


def test_only_unobserved_entries_are_doubted() -> None:
    losses = torch.tensor([[9.0, 8.0, 1.0, 0.5]])
    observed = torch.tensor([[0, 1, -1, -1]])
    doubted, t = large_losses(losses, observed, rate=0.25)  # k = 1
    assert doubted.tolist() == [[False, False, True, False]]
    assert t.item() == 1


def test_a_threshold_of_zero_doubts_no_entry_without_a_loss() -> None:
    losses = torch.tensor([[9.0, 8.0, 1.0, 0.0]])
    observed = torch.tensor([[0, 1, -1, -1]])
    doubted, t = large_losses(losses, observed, rate=1.0)
    assert t.item() == 0
    assert doubted.tolist() == [[False, False, True, False]]


@pytest.mark.parametrize("known", [0, 1])
def test_nothing_is_doubted_where_everything_is_known_or_at_rate_zero(known: int) -> None:
    losses = torch.rand(3, 4)
    assert not large_losses(losses, torch.full((3, 4), known), 0.5)[0].any()
    assert not large_losses(losses, torch.full((3, 4), -1), 0.0)[0].any()


@pytest.mark.parametrize(("rate", "count"), [(0.003, 3), (0.0031, 4), (0.0001, 1), (1.0, 1000)])
def test_the_number_of_doubts_is_rounded_up(rate: float, count: int) -> None:
    losses = torch.rand(10, 100, generator=torch.Generator().manual_seed(0)) + 1
    doubted, _ = large_losses(losses, torch.full((10, 100), -1), rate)
    assert doubted.sum().item() == count


def test_any_run_length_ends_at_the_share_of_the_papers_tenth_epoch() -> None:
    method = LargeLossMethod(LargeLossMethod.Config(), labels=3)
    for epochs in (2, 10, 40):
        assert method.doubted_share(1, epochs) == 0
        assert method.doubted_share(epochs, epochs) == pytest.approx(9 * 0.002)
    assert method.doubted_share(1, 1) == 0


def test_delta_can_be_taken_per_epoch() -> None:
    method = LargeLossMethod(LargeLossMethod.Config(delta_epochs=None), labels=3)
    assert method.doubted_share(40, 40) == pytest.approx(39 * 0.002)


# ------------------------------------------------------------------------------- estimated labels


def test_estimates_start_at_the_observed_labels_and_undecided_elsewhere(
    vectors: dict[str, Any],
) -> None:
    expected = vectors["baseline.role_init"]["expected"]
    observed = torch.tensor([[1, 0, -1, -1]]).repeat(1000, 1)
    torch.manual_seed(0)
    estimates = initial_estimates(observed)
    assert estimates[:, 0].unique().item() == pytest.approx(expected["logit_pos"], abs=2e-5)
    assert estimates[:, 1].unique().item() == pytest.approx(expected["logit_neg"], abs=2e-5)
    half_range = expected["half_range_logit"]
    assert estimates[:, 2:].abs().max() <= half_range + 1e-6
    assert estimates[:, 2:].max() > 0.99 * half_range
    assert estimates[:, 2:].mean().abs() < 0.05 * half_range


def test_each_half_of_role_has_the_gradient_of_its_loss_with_the_other_held() -> None:
    """Against the formula as it is written in the paper, half by half."""

    def written(mine: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        p, t = mine.sigmoid(), other.sigmoid()
        yes, no = -torch.log(p + 1e-5), -torch.log(1 - p + 1e-5)
        known = torch.where(observed == 1, yes, torch.where(observed == 0, no, 0.0))
        missing = (p.sum(1).mean() - 1.0) ** 2 / 9
        return ((known + t * yes + (1 - t) * no).mean() + missing) / 2

    both = torch.randn(2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    observed = torch.randint(-1, 2, (4, 3), generator=torch.Generator().manual_seed(1))
    tables = [half.clone().requires_grad_() for half in both]
    losses = agreement(tables[0], tables[1], observed, torch.tensor(1.0))
    for half in (0, 1):
        found = torch.autograd.grad(losses[half], tables, allow_unused=True)
        assert found[1 - half] is None, "the other table is a constant"
        mine, other = both[half].clone().requires_grad_(), both[1 - half]
        loss = written(mine, other)
        torch.testing.assert_close(losses[half], loss)
        torch.testing.assert_close(found[half], torch.autograd.grad(loss, mine)[0])


def test_a_known_negative_pays_for_being_likely() -> None:
    # One entry, p = 0.5 = E, κ met: the cross term is nl(0.5) / 2 and the known label adds as much.
    zero, kappa, cost = torch.zeros(1, 1), torch.tensor(0.5), -math.log(0.50001)
    for code, expected in ((0, cost), (1, cost), (-1, cost / 2)):
        paid = agreement(zero, zero, torch.tensor([[code]]), kappa)
        assert [half.item() for half in paid] == pytest.approx([expected] * 2, rel=1e-6)


def walk(steps: int, generator: torch.Generator) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Rows seen and their gradients at each step, of a table of 12 × 3."""
    batches = [torch.randperm(12, generator=generator)[:4] for _ in range(steps)]
    return [(rows, torch.randn(4, 3, generator=generator)) for rows in batches]


def row_by_row(seen_rows: list[tuple[torch.Tensor, torch.Tensor]], lr: float) -> torch.Tensor:
    weights, squares, seen = torch.zeros(12, 3), torch.zeros(12, 3), torch.zeros(12)
    for step, (rows, gradient) in enumerate(seen_rows, start=1):
        adam_rows_(weights, squares, seen, rows, gradient, torch.tensor(float(step)), lr)
    return weights


def whole_table(
    seen_rows: list[tuple[torch.Tensor, torch.Tensor]], lr: float, momentum: float
) -> torch.Tensor:
    weights = torch.nn.Parameter(torch.zeros(12, 3))
    optimiser = torch.optim.Adam([weights], lr=lr, betas=(momentum, 0.999))
    for rows, gradient in seen_rows:
        weights.grad = torch.zeros(12, 3).index_add(0, rows, gradient)
        optimiser.step()
    return weights.detach()


def test_row_by_row_adam_is_adam_over_the_whole_table() -> None:
    seen_rows = walk(60, torch.Generator().manual_seed(1))
    expected = whole_table(seen_rows, 0.01, momentum=0.0)
    assert torch.allclose(row_by_row(seen_rows, 0.01), expected, atol=1e-5)


def test_momentum_would_spread_a_rows_move_and_not_change_where_it_leads() -> None:
    # A gradient, then 200 steps in which the row is not seen: torch's Adam drifts on with momentum.
    quiet = torch.zeros(4, 3)
    rows = torch.arange(4)
    warm = [(rows, torch.full((4, 3), 0.5))] * 2000  # long enough for bias corrections to be over
    seen_rows = [*warm, *[(rows + 4, quiet)] * 200]
    ours, theirs = row_by_row(seen_rows, 1e-3), whole_table(seen_rows, 1e-3, momentum=0.9)
    assert torch.allclose(ours[:4], theirs[:4], rtol=0.01)


def test_a_row_twice_in_a_batch_takes_the_sum_of_its_gradients() -> None:
    once = row_by_row([(torch.tensor([3]), torch.tensor([[3.0, 1.0, 0.0]]))], 0.1)
    gradient = torch.tensor([[1.0, 1.0, 0.0], [2.0, 0.0, 0.0]])
    twice = row_by_row([(torch.tensor([3, 3]), gradient)], 0.1)
    assert torch.allclose(once, twice)


# ------------------------------------------------------------------------------- any numbers at all

SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 6))


@settings(max_examples=25, deadline=None)
@given(
    shape=SHAPES,
    seed=st.integers(0, 2**16),
    size=st.sampled_from([0.0, 1.0, 30.0, 1e4]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_the_shared_losses_stay_finite(
    shape: tuple[int, int], seed: int, size: float, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(seed)
    observed = torch.randint(-1, 2, shape, generator=generator)
    values = (size * torch.randn(shape, generator=generator)).clamp(-1e4, 1e4).to(dtype)
    logits = values.requires_grad_()
    other = (size * torch.randn(shape, generator=generator)).to(dtype)
    kappa = torch.tensor(1.0)
    doubted, _ = large_losses(bce(logits, observed == 1), observed, 0.3)
    total = (
        soft_loss(logits, torch.zeros_like(logits)).sum()
        + soft_loss(logits, torch.ones_like(logits)).sum()
        + bce(logits, doubted).sum()
    )
    total.backward()
    tables = [logits.detach().clone().requires_grad_(), other.requires_grad_()]
    halves = agreement(tables[0], tables[1], observed, kappa)
    for half, table in zip(halves, tables, strict=True):
        assert half.isfinite()
        assert torch.autograd.grad(half, table)[0].isfinite().all()
    assert total.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
