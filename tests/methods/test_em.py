"""EM and EM + APL: entry losses and the choice of soft labels, against vectors and by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmlbench.checks.toy import spec_for, toy, train
from ssmlbench.core.paths import builtin_root
from ssmlbench.kit.pools import Batch, Forward, Pool, Pools
from ssmlbench.plugins.loader import load_file

em = load_file(builtin_root() / "methods" / "em.py")
em_apl = load_file(builtin_root() / "methods" / "em_apl.py")
TOLERANCE = 2e-5


def build_em(labels: int = 3, **options: Any) -> Any:
    return em.Em(em.Em.Config(**options), labels)


def build_apl(labels: int = 3, **options: Any) -> Any:
    return em_apl.EmApl(em_apl.EmApl.Config(**options), labels)


def unknown_for_zero(observed: torch.Tensor) -> torch.Tensor:
    """The vectors' code (0 unknown) in ours (-1 unknown)."""
    return torch.where(observed == 1, 1, -1).to(torch.int8)


def fixed_pools(
    labelled: torch.Tensor, unlabelled: torch.Tensor, scores: torch.Tensor, epochs: int = 10
) -> Pools:
    """Pools whose network gives these scores: the labelled rows' first, then the others'."""
    both = scores.logit().split([len(labelled), len(unlabelled)])

    def pool(observed: torch.Tensor, logits: torch.Tensor) -> Pool:
        return Pool(observed, torch.zeros(2), lambda model, view, names: {"logits": logits})

    return Pools(pool(labelled, both[0]), pool(unlabelled, both[1]), epochs=epochs)


def test_em_entries_are_the_vectors(vectors: dict[str, Any]) -> None:
    inputs = vectors["em.loss_alpha0.2"]["inputs"]
    expected = vectors["em.loss_alpha0.2"]["expected"]
    logits = torch.tensor(inputs["prob"]).logit()
    observed = unknown_for_zero(torch.tensor(inputs["obs"]))
    entries = build_em(alpha=inputs["alpha"]).entry_loss(logits, observed)
    torch.testing.assert_close(
        entries, torch.tensor(expected["loss_matrix"]), atol=TOLERANCE, rtol=0
    )
    assert float(entries.mean()) == pytest.approx(expected["mean"], abs=TOLERANCE)


def test_soft_labelled_entries_are_the_vectors(vectors: dict[str, Any]) -> None:
    inputs = vectors["em.apl_loss"]["inputs"]
    expected = vectors["em.apl_loss"]["expected"]
    coded = torch.tensor(inputs["obs_negative_means_minus_soft_label"])
    soft = torch.where(coded < 0, -coded, em_apl.UNSET)
    method = build_apl(alpha=inputs["alpha"], beta=inputs["beta"])
    logits = torch.tensor(inputs["prob"]).logit()
    entries = method.soft_entry_loss(logits, unknown_for_zero(coded), soft)
    torch.testing.assert_close(
        entries, torch.tensor(expected["loss_matrix"]), atol=TOLERANCE, rtol=0
    )
    assert float(entries.mean()) == pytest.approx(expected["mean"], abs=TOLERANCE)


def test_the_lowest_unknown_scores_become_soft_labels_as_in_the_vector(
    vectors: dict[str, Any],
) -> None:
    inputs = vectors["em.apl_selection"]["inputs"]
    expected = vectors["em.apl_selection"]["expected"]
    rounds = inputs["num_epochs"] - inputs["warmup_epoch"]
    counts = em_apl.quota(
        torch.tensor(inputs["initial_unlabelled_count_per_class"]),
        inputs["neg_proportion"],
        rounds,
    )
    assert counts.tolist() == expected["n_select"]
    scores = torch.tensor(inputs["prob"])
    observed = torch.tensor(inputs["obs"])
    chosen, _ = em_apl.lowest(scores, observed == 0, counts)
    after = torch.where(chosen, -scores, observed)
    torch.testing.assert_close(after, torch.tensor(expected["obs_after"]))


def test_known_negatives_pay_for_their_score_unless_literal() -> None:
    logits, negative = torch.tensor([[0.0]]), torch.tensor([[0]], dtype=torch.int8)
    # p = 1/2: -log(1/2 + 1e-5) = 0.693127; as an unknown entry, -0.2 of the same number.
    assert float(build_em(1).entry_loss(logits, negative)) == pytest.approx(0.693127, abs=1e-6)
    literal = build_em(1, literal=True).entry_loss(logits, negative)
    assert float(literal) == pytest.approx(-0.2 * 0.693127, abs=1e-6)


def test_entropy_is_differentiated_through_both_factors() -> None:
    z = torch.tensor([[0.7]], requires_grad=True)
    build_em(1, alpha=1.0).entry_loss(z, torch.tensor([[-1]])).sum().backward()
    # d(-H)/dz = z p (1 - p), which is 0.7 × 0.668188 × 0.331812 = 0.155199.
    assert float(z.grad) == pytest.approx(0.155199, abs=5e-5)


def test_an_entry_counts_the_same_in_both_pools() -> None:
    views = {
        ("labelled", "strong"): torch.zeros(1, 2),
        ("unlabelled", "strong"): torch.zeros(3, 2),
    }
    forward = Forward(lambda x: {"logits": x}, views)
    observed = torch.tensor([[1, 0]], dtype=torch.int8)
    labelled = Batch("labelled", torch.arange(1), observed, forward, forward)
    nothing = torch.full((3, 2), -1, dtype=torch.int8)
    unlabelled = Batch("unlabelled", torch.arange(3), nothing, forward, forward)
    # Two known entries at log 2 and six unknown ones at -0.2 log 2, over eight.
    total = sum(build_em(2).loss(labelled, unlabelled).values())
    assert float(total) == pytest.approx((2 - 6 * 0.2) * 0.693127 / 8, abs=1e-6)


def test_soft_labels_come_after_half_of_the_epochs_and_are_never_revised() -> None:
    labelled = torch.tensor([[1, 0], [0, 1]], dtype=torch.int8)
    unlabelled = torch.full((10, 2), -1, dtype=torch.int8)
    scores = torch.linspace(0.05, 0.95, 24).reshape(12, 2)
    pools = fixed_pools(labelled, unlabelled, scores)
    method = build_apl(2)
    method.setup(pools)
    assert method.quota.tolist() == [1, 1]  # int(0.9 × 10 / 5)

    pools.epoch = 5  # before the fifth epoch four are done
    method.start_epoch(pools)
    assert (method.soft == em_apl.UNSET).all()

    pools.epoch = 6
    method.start_epoch(pools)
    given = method.soft != em_apl.UNSET
    assert given.sum(0).tolist() == [1, 1]
    assert not given[:2].any()  # labelled rows have nothing unknown
    torch.testing.assert_close(method.soft[2], scores[2])

    later = fixed_pools(labelled, unlabelled, 1 - scores)
    later.epoch = 7
    method.start_epoch(later)
    torch.testing.assert_close(method.soft[2], scores[2])
    torch.testing.assert_close(method.soft[11], 1 - scores[11])
    targets, trust = method.pseudo_labels()
    assert targets.shape == trust.shape == (10, 2)
    assert trust.sum() == 4


def test_the_share_of_soft_labels_is_reached_in_the_last_epoch() -> None:
    observed = torch.full((200, 1), -1, dtype=torch.int8)
    pools = fixed_pools(observed, observed[:0], torch.rand(200, 1), epochs=20)
    method = build_apl(1)
    method.setup(pools)
    for pools.epoch in range(1, 21):
        method.start_epoch(pools)
    assert int((method.soft != em_apl.UNSET).sum()) == 180  # 0.9 of them, in ten rounds


def test_literal_soft_labels_reach_labelled_negatives() -> None:
    labelled = torch.tensor([[1, 0], [0, 1]], dtype=torch.int8)
    pools = fixed_pools(labelled, labelled[:0], torch.rand(2, 2), epochs=2)
    method = build_apl(2, literal=True, negative_share=1.0)
    method.setup(pools)
    pools.epoch = 2
    method.start_epoch(pools)
    assert ((method.soft != em_apl.UNSET) == (labelled == 0)).all()


def test_a_run_can_leave_unlabelled_rows_out() -> None:
    config = {**spec_for(em_apl.EmApl, "semi").config, "reading": "lab"}
    outcome = train(em_apl.EmApl, toy("vector"), spec_for(em_apl.EmApl, "semi", config=config))
    assert "pseudo_trusted" not in outcome.history[-1]


@settings(max_examples=25, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 4)),
    size=st.sampled_from([1.0, 30.0, 1e4]),
    seed=st.integers(0, 999),
    label=st.sampled_from([None, -1, 0, 1]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_losses_and_gradients_are_finite(
    shape: tuple[int, int], size: float, seed: int, label: int | None, dtype: torch.dtype
) -> None:
    draw = torch.Generator().manual_seed(seed)
    logits = (size * (2 * torch.rand(shape, generator=draw) - 1)).to(dtype).requires_grad_()
    observed = torch.randint(-1, 2, shape, generator=draw)
    observed = observed if label is None else torch.full(shape, label)
    soft = torch.where(torch.rand(shape, generator=draw) < 0.5, 0.0, em_apl.UNSET)
    total = build_apl(shape[1]).soft_entry_loss(logits, observed, soft).mean()
    total = total + build_em(shape[1]).entry_loss(logits, observed).mean()
    total.backward()
    assert total.isfinite()
    assert logits.grad.isfinite().all()


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 20), seed=st.integers(0, 999), levels=st.sampled_from([2, 1000]))
def test_exactly_the_quota_is_chosen_and_nothing_lower_is_left(
    rows: int, seed: int, levels: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, levels, (rows, 3), generator=draw) / levels  # many ties, or few
    unknown = torch.rand(rows, 3, generator=draw) < 0.6
    counts = torch.randint(0, rows + 1, (3,), generator=draw)
    chosen, _ = em_apl.lowest(scores, unknown, counts)
    assert not (chosen & ~unknown).any()
    assert torch.equal(chosen.sum(0), torch.minimum(counts, unknown.sum(0)))
    for k in range(3):
        taken, left = scores[chosen[:, k], k], scores[(unknown & ~chosen)[:, k], k]
        if len(taken) and len(left):
            assert taken.max() <= left.min()
