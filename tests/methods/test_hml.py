"""HML: its margin, its adaptive loss and its readings of labels, against vectors and by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmlbench.checks.toy import LABELS, spec_for, toy, toy_trainer, train
from ssmlbench.core.paths import builtin_root
from ssmlbench.kit.pools import Batch, Forward, Pool, Pools
from ssmlbench.plugins.loader import load_file

hml = load_file(builtin_root() / "methods" / "hml.py")
TOLERANCE = 2e-5


def build(labels: int = 3, **options: Any) -> Any:
    return hml.Hml(hml.Hml.Config(**options), labels)


def batch(cosines: torch.Tensor, observed: torch.Tensor, pool: str = "labelled") -> Batch:
    forward = Forward(lambda x: {"logits": x}, {(pool, "strong"): cosines})
    return Batch(pool, torch.arange(len(cosines)), observed.to(torch.int8), forward, forward)


def test_probabilities_and_both_losses_are_the_vectors(vectors: dict[str, Any]) -> None:
    inputs = vectors["hml.s20_m0.3"]["inputs"]
    expected = vectors["hml.s20_m0.3"]["expected"]
    cosines, y = torch.tensor(inputs["cos"]), torch.tensor(inputs["y"])
    method = build(adaptive=True, scale=inputs["s"], margin=inputs["m"])
    terms = method.loss(batch(cosines, y), None)
    probabilities = method.scores(cosines)
    torch.testing.assert_close(
        probabilities, torch.tensor(expected["prob"]), atol=TOLERANCE, rtol=0
    )
    assert float(terms["labelled"]) == pytest.approx(
        expected["bce_sum_per_image_mean_over_batch"], abs=TOLERANCE
    )
    assert float(terms["labelled"]) / 3 == pytest.approx(
        expected["bce_mean_over_BK"], abs=TOLERANCE
    )
    assert terms["adaptive"].item() == pytest.approx(expected["L_adpt"], abs=TOLERANCE)
    missing, excess = (y * (1 - probabilities)).sum(), ((1 - y) * probabilities).sum()
    assert missing.item() == pytest.approx(expected["sum_pos_1mp"], abs=TOLERANCE)
    assert excess.item() == pytest.approx(expected["sum_neg_p"], abs=TOLERANCE)


def test_the_adaptive_loss_moves_scale_and_margin_only(vectors: dict[str, Any]) -> None:
    inputs = vectors["hml.s20_m0.3"]["inputs"]
    expected = vectors["hml.s20_m0.3"]["expected"]
    cosines = torch.tensor(inputs["cos"], requires_grad=True)
    y = torch.tensor(inputs["y"])
    s = torch.tensor(inputs["s"], requires_grad=True)
    m = torch.tensor(inputs["m"], requires_grad=True)
    hml.adaptive_loss(cosines, y, s, m, torch.ones_like(y)).backward()
    assert float(s.grad) == pytest.approx(expected["dLadpt_ds"], abs=TOLERANCE)
    assert float(m.grad) == pytest.approx(expected["dLadpt_dm"], abs=TOLERANCE)
    assert cosines.grad is None


def test_bce_does_not_move_the_adaptive_scale_and_margin() -> None:
    method = build(adaptive=True)
    cosines = torch.tensor([[0.6, 0.1, -0.3]], requires_grad=True)
    method.loss(batch(cosines, torch.tensor([[1, 0, 0]])), None)["labelled"].backward()
    assert cosines.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in method.parameters())


def test_the_margin_has_no_guard_beyond_pi(vectors: dict[str, Any]) -> None:
    vector = vectors["hml.margin_wraparound"]
    shifted = hml.margin_logits(
        torch.tensor(vector["inputs"]["cos"]),
        torch.tensor(1.0),
        torch.tensor(vector["inputs"]["m"]),
    )
    expected = torch.tensor(vector["expected"]["cos_theta_plus_m"])
    torch.testing.assert_close(shifted, expected, atol=TOLERANCE, rtol=0)


def test_unobserved_entries_are_negatives() -> None:
    cosines = torch.tensor([[0.6, 0.1, -0.3]])
    partial = build().loss(batch(cosines, torch.tensor([[1, -1, -1]])), None)
    complete = build().loss(batch(cosines, torch.tensor([[1, 0, 0]])), None)
    assert torch.equal(partial["labelled"], complete["labelled"])


def test_by_default_unlabelled_rows_are_left_alone() -> None:
    assert build().unlabelled_views == ()
    assert build(pseudo="cap").unlabelled_views == ("strong",)


def test_pseudo_labels_of_unlabelled_rows_enter_with_their_trust() -> None:
    method = build(labels=2, pseudo="cap", unlabelled_weight=0.5)
    method.targets, method.trust = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]])
    views = {
        ("labelled", "strong"): torch.tensor([[0.5, -0.5]]),
        ("unlabelled", "strong"): torch.tensor([[0.3, 0.7]]),
    }
    forward = Forward(lambda x: {"logits": x}, views)
    rows = torch.tensor([0])
    labelled = Batch("labelled", rows, torch.tensor([[1, 0]], dtype=torch.int8), forward, forward)
    unlabelled = Batch("unlabelled", rows, torch.full((1, 2), -1), forward, forward)
    terms = method.loss(labelled, unlabelled)
    # Only the trusted positive counts: 0.5 × -log σ(20 cos(arccos 0.3 + 0.3)).
    logit = 20 * math.cos(math.acos(0.3) + 0.3)
    assert float(terms["unlabelled"]) == pytest.approx(
        0.5 * math.log1p(math.exp(-logit)), rel=1e-4, abs=1e-6
    )


@pytest.mark.parametrize("options", [{"head": "linear"}, {"scale": 200.0}], ids=str)
def test_pseudo_labels_follow_ranks_where_scores_are_rounded_to_one(
    options: dict[str, Any],
) -> None:
    method, rows = build(labels=2, pseudo="cap", **options), 40
    outputs = torch.linspace(0.5, 0.7, 2 * rows).view(2, rows).T
    outputs = outputs * 100 if options.get("head") == "linear" else outputs
    assert (method.scores(outputs) == 1).all()
    prior, known = torch.full((2,), 0.25), torch.full((rows, 2), -1)
    pool = Pool(known, prior, lambda model, view, names: {"logits": outputs})
    method.start_epoch(Pools(pool, pool))
    assert method.targets.sum(0).tolist() == [10, 10]
    assert method.targets[-10:].all()
    assert method.diagnostics["tied_positives"] == 0


@pytest.mark.parametrize(("head", "decays"), [("linear", True), ("cosine", False)])
def test_the_decay_follows_the_head(head: str, decays: bool) -> None:
    spec = spec_for(hml.Hml, "semi", relative_decay=1.5, weight_decay=0.0, config={"head": head})
    trainer, _ = toy_trainer(hml.Hml, toy("vector"), spec)
    trainer.start_phase(0)
    assert any(group["weight_decay"] > 0 for group in trainer.optimiser.param_groups) == decays


def test_the_adaptive_scale_starts_at_s_and_stays_positive() -> None:
    method = build(adaptive=True, scale=5.0)
    assert method.scale_and_margin()[0].item() == pytest.approx(5.0, abs=1e-5)
    method.free_scale.data.fill_(-30.0)
    assert float(method.scale_and_margin()[0]) > 0
    assert method.parameter_groups(0.1)[0]["weight_decay"] == 0.0


@pytest.mark.parametrize("options", [{"adaptive": True}, {"pseudo": "cap"}], ids=str)
def test_every_option_trains_in_semi(options: dict[str, Any]) -> None:
    method = hml.Hml
    config = {**spec_for(method, "semi").config, **options}
    outcome = train(method, toy("vector"), spec_for(method, "semi", config=config))
    assert outcome.scores.shape[1] == LABELS
    if "adaptive" in options:
        assert "loss_adaptive" in outcome.history[-1]
    else:
        assert "loss_unlabelled" in outcome.history[-1]


@settings(max_examples=25, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 4)),
    seed=st.integers(0, 999),
    ends=st.booleans(),
    label=st.sampled_from([None, -1, 0, 1]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_losses_and_gradients_are_finite(
    shape: tuple[int, int], seed: int, ends: bool, label: int | None, dtype: torch.dtype
) -> None:
    draw = torch.Generator().manual_seed(seed)
    cosines = 2 * torch.rand(shape, generator=draw) - 1
    # Rounding can carry a cosine a little past ±1.
    cosines = (cosines.sign() * 1.01 if ends else cosines).to(dtype).requires_grad_()
    observed = torch.randint(-1, 2, shape, generator=draw)
    observed = observed if label is None else torch.full(shape, label)
    method = build(labels=shape[1], adaptive=True)
    total = sum(method.loss(batch(cosines, observed), None).values())
    total.backward()
    assert total.isfinite()
    for tensor in (cosines, *method.parameters()):
        assert tensor.grad.isfinite().all()


@pytest.mark.parametrize(
    ("side", "margins"),
    [("both", [0.3, 0.3]), ("positives", [0.3, 0.0]), ("negatives", [0.0, 0.3])],
)
def test_the_margin_shifts_the_training_entries_of_its_side(
    side: str, margins: list[float]
) -> None:
    cosines = [0.6, 0.1]  # of a positive and a negative
    method = build(labels=2, margin_on=side)
    term = method.loss(batch(torch.tensor([cosines]), torch.tensor([[1, 0]])), None)["labelled"]
    z = [20 * math.cos(math.acos(c) + m) for c, m in zip(cosines, margins, strict=True)]
    expected = math.log1p(math.exp(-z[0])) + math.log1p(math.exp(z[1]))
    assert float(term) == pytest.approx(expected, rel=1e-4)
    at_test = 20 * math.cos(math.acos(0.1) + (0.3 if side == "both" else 0.0))
    found = float(method.scores(torch.tensor([cosines]))[0, 1])
    assert found == pytest.approx(1 / (1 + math.exp(-at_test)), rel=1e-4)


def test_the_linear_head_is_plain_bce_without_scale_and_margin() -> None:
    method = build(labels=2, head="linear", adaptive=True)
    assert isinstance(method.build_head(5), torch.nn.Linear)
    assert list(method.parameters()) == []
    logits = torch.tensor([[2.0, -3.0]])
    terms = method.loss(batch(logits, torch.tensor([[1, 0]])), None)
    assert terms.keys() == {"labelled"}
    expected = math.log1p(math.exp(-2.0)) + math.log1p(math.exp(-3.0))
    assert float(terms["labelled"]) == pytest.approx(expected, rel=1e-5)
    assert torch.equal(method.scores(logits), logits.sigmoid())
