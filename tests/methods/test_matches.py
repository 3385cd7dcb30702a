"""FixMatch, FreeMatch and SoftMatch: the confidence of single entries decides what is learnt."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ssmlbench.checks.toy import spec_for, toy, train
from ssmlbench.core.paths import builtin_root
from ssmlbench.kit.method import Method
from ssmlbench.kit.pools import Batch, Forward, Pool, Pools
from ssmlbench.kit.pseudo_labels import (
    confident_targets,
    consistency,
    momentum_at,
    moved_thresholds,
    usage,
)
from ssmlbench.plugins.loader import Plugins, load_file
from tests.support.vectors import close

fixmatch, freematch, softmatch = (
    load_file(builtin_root() / "methods" / f"{name}.py")
    for name in ("fixmatch", "freematch", "softmatch")
)
METHODS = {
    name: cls for name in Plugins().methods if issubclass(cls := Plugins().methods[name], Method)
}
CLASSES = (fixmatch.FixMatch, freematch.FreeMatch, softmatch.SoftMatch)


def tensors(vector: dict[str, Any], *names: str) -> list[Tensor]:
    return [torch.tensor(vector["inputs"][name]) for name in names]


def pools_of(rows: int, labels: int, prior: Tensor | None = None) -> Pools:
    def no_predictions(*_: Any) -> Any:
        raise AssertionError("these methods ask for no whole pool")

    observed = torch.zeros(rows, labels, dtype=torch.int8)
    prior = torch.full((labels,), 0.25).double() if prior is None else prior
    pool = Pool(observed, prior, no_predictions)
    return Pools(pool, Pool(observed - 1, prior, no_predictions))


def batches(weak: Tensor, strong: Tensor) -> tuple[Batch, Batch]:
    """A labelled and an unlabelled batch whose logits are the given ones."""
    parts = {
        ("labelled", "weak"): strong,
        ("unlabelled", "weak"): weak,
        ("unlabelled", "strong"): strong,
    }
    forward = Forward(lambda logits: {"logits": logits}, parts)
    rows, ones = torch.arange(len(weak)), torch.ones_like(weak).char()
    return (
        Batch("labelled", rows, ones, forward, forward),
        Batch("unlabelled", rows, -ones, forward, forward),
    )


def loss_of(cls: type[Method], weak: Tensor, strong: Tensor, **changes: Any) -> tuple[Method, dict]:
    method = cls(cls.Config(**changes), weak.shape[1])
    method.setup(pools_of(4, weak.shape[1]))
    return method, method.loss(*batches(weak, strong))


# ------------------------------------------------------------------------------- vectors


def test_fixmatch_uses_the_entries_beyond_its_threshold(vectors: dict[str, Any]) -> None:
    vector = vectors["fixmatch.ml_adapted"]
    q, strong = tensors(vector, "weak_prob", "strong_logits")
    tau = vector["inputs"]["tau"]
    targets, mask = fixmatch.confident_entries(q, tau, tau)
    close(mask, vector["expected"]["mask"])
    close(consistency(strong, targets, mask), vector["expected"]["mean"])


def test_freematch_thresholds_follow_the_confidence_of_their_label(vectors: dict[str, Any]) -> None:
    vector = vectors["freematch.ml_adapted"]
    q, strong, tau = tensors(vector, "weak_prob", "strong_logits", "tau_prev")
    targets, confidence = confident_targets(q)
    moved = moved_thresholds(tau, confidence, vector["inputs"]["ema"])
    close(moved, vector["expected"]["tau_new"])
    mask = (confidence >= moved).float()
    close(mask, vector["expected"]["mask"])
    close(consistency(strong, targets, mask), vector["expected"]["mean"])


def test_softmatch_weighs_entries_by_a_gaussian_a_label(vectors: dict[str, Any]) -> None:
    vector = vectors["softmatch.ml_adapted"]
    q, strong, mu, var = tensors(
        vector, "weak_prob", "strong_logits", "mu_per_label", "var_per_label"
    )
    targets, confidence = confident_targets(q)
    close(confidence, vector["expected"]["conf"])
    close(targets, vector["expected"]["pseudo"])
    weights = softmatch.truncated_gaussian(confidence, mu, var, vector["inputs"]["n_sigma"])
    close(weights, vector["expected"]["weight"])
    close(consistency(strong, targets, weights), vector["expected"]["mean"])


def test_softmatch_statistics_are_the_official_ones(vectors: dict[str, Any]) -> None:
    vector = vectors["softmatch.official_weight"]
    (probabilities,) = tensors(vector, "probs")
    confidence = probabilities.max(dim=1, keepdim=True).values  # one column: one "label"
    third = torch.full((1, 1), 1 / 3)
    one = torch.full((1, 1), vector["inputs"]["init_var"])
    mu, var = softmatch.moved_gaussians(
        third, one, confidence, torch.ones_like(confidence)[None], vector["inputs"]["momentum"]
    )
    close(mu, [[vector["expected"]["mu"]]])
    close(var, [[vector["expected"]["var"]]])
    weights = softmatch.truncated_gaussian(confidence, mu, var, vector["inputs"]["n_sigma"])
    close(weights[:, 0], vector["expected"]["weight"])


def test_softmatch_weight_is_the_official_one(vectors: dict[str, Any]) -> None:
    vector = vectors["softmatch.official_weight_fixed_state"]
    probabilities, mu, var = tensors(vector, "probs", "mu", "var")
    weights = softmatch.truncated_gaussian(
        probabilities.max(dim=1).values, mu, var, vector["inputs"]["n_sigma"]
    )
    close(weights, vector["expected"]["weight"])


def test_softmatch_alignment_is_the_official_one_between_two_classes(
    vectors: dict[str, Any],
) -> None:
    """Alignment scales odds: between two classes of a softmax that is our binary form."""
    vector = vectors["softmatch.official_alignment_first_batch"]
    (q,) = tensors(vector, "probs")
    rate = softmatch.moved_rate(torch.full((3,), torch.nan), q, 0.999)
    close(rate, vector["expected"]["p_model"])
    expected = torch.tensor(vector["expected"]["aligned"])
    for i, j in ((0, 1), (0, 2), (1, 2)):
        pair = q[:, i] / (q[:, i] + q[:, j])
        even, pair_rate = torch.tensor(0.5), rate[i] / (rate[i] + rate[j])
        found = softmatch.aligned(pair.logit(), even, pair_rate).sigmoid()
        close(found, (expected[:, i] / (expected[:, i] + expected[:, j])).tolist())


# ------------------------------------------------------------------------------- behaviour


def test_fixmatch_can_ask_more_of_positives_than_of_negatives() -> None:
    q = torch.tensor([[0.92, 0.98, 0.08, 0.02]])
    targets, mask = fixmatch.confident_entries(q, 0.95, 0.9)
    assert targets.tolist() == [[1, 1, 0, 0]]
    assert mask.tolist() == [[0, 1, 1, 1]]


def test_the_share_of_used_entries_is_told_for_positives_and_negatives_apart() -> None:
    targets = torch.tensor([[1.0, 1, 0, 0, 0]])
    mask = torch.tensor([[1.0, 0, 1, 1, 1]])
    assert {k: float(v) for k, v in usage(targets, mask).items()} == {
        "used_positives": 0.5,
        "used_negatives": 1.0,
    }
    assert float(usage(torch.zeros(2, 3), torch.ones(2, 3))["used_positives"]) == 0


@pytest.mark.parametrize("cls", CLASSES)
def test_the_share_is_in_the_history_and_not_in_the_loss(cls: type[Method]) -> None:
    history = train(cls, toy("vector"), spec_for(cls, "semi")).history
    assert "used_positives" not in history[0]  # warm-up
    assert 0 <= history[-1]["used_positives"] <= 1
    assert {key for key in history[-1] if key.startswith("loss_")} == {
        "loss_labelled",
        "loss_unlabelled",
    }


@pytest.mark.parametrize("cls", CLASSES)
def test_targets_come_from_the_weak_view_and_carry_no_gradient(cls: type[Method]) -> None:
    weak = torch.tensor([[9.0, -9.0]], requires_grad=True)
    strong = torch.tensor([[-1.0, 1.0]], requires_grad=True)
    loss_of(cls, weak, strong)[1]["unlabelled"].backward()
    assert weak.grad is not None
    assert strong.grad is not None
    assert not weak.grad.any()
    assert strong.grad[0, 0] < 0 < strong.grad[0, 1]  # a descent raises the first logit


@pytest.mark.parametrize("cls", CLASSES)
def test_labelled_rows_are_seen_weakly_unless_asked_otherwise(cls: type[Method]) -> None:
    assert cls(cls.Config(), 3).labelled_views == ("weak",)
    assert cls(cls.Config(labelled_view="strong"), 3).labelled_views == ("strong",)


def test_two_gaussians_hold_positives_and_negatives_apart() -> None:
    """Label 1: confidences .9 and .7 of positives, .6 of a negative; label 2: negatives only.

    By hand, momentum 0: positives' mean .8, unbiased variance .02; the single negative moves its
    mean and not its variance; a group without members moves nothing.
    """
    q = torch.tensor([[0.9, 0.2], [0.7, 0.1], [0.4, 0.3]])
    targets, confidence = confident_targets(q)
    mu, var = softmatch.moved_gaussians(
        torch.full((2, 2), 0.5),
        torch.ones(2, 2),
        confidence,
        torch.stack([1 - targets, targets]),
        0.0,
    )
    close(mu, [[0.6, 0.8], [0.8, 0.5]])
    close(var, [[1.0, 0.01], [0.02, 1.0]])


def test_alignment_moves_the_mean_rate_to_the_prior() -> None:
    logits, prior = torch.tensor([[1.0]]), torch.tensor([0.1])
    rate = softmatch.moved_rate(torch.tensor([torch.nan]), logits.sigmoid(), 0.999)
    close(softmatch.aligned(logits, prior, rate).sigmoid(), [[0.1]])


def test_an_aligned_softmatch_keeps_its_own_decisions() -> None:
    method = softmatch.SoftMatch(softmatch.SoftMatch.Config(alignment="prior"), 2)
    method.setup(pools_of(4, 2, prior=torch.tensor([0.0, 1.0]).double()))
    targets, weights = method.weigh(torch.tensor([[2.0, -2.0], [3.0, -3.0]]))
    assert targets.tolist() == [[1, 0], [1, 0]]
    assert weights.isfinite().all()


def test_a_collapsed_variance_leaves_finite_weights() -> None:
    weights = softmatch.truncated_gaussian(
        torch.tensor([0.5, 1.0]), torch.tensor(1.0), torch.tensor(0.0), 2.0
    )
    assert weights.tolist() == [0.0, 1.0]


VARIANTS = [
    (fixmatch.FixMatch, {}),
    (fixmatch.FixMatch, {"positive_threshold": 0.5}),
    (freematch.FreeMatch, {}),
    (softmatch.SoftMatch, {}),
    (softmatch.SoftMatch, {"gaussians": "two", "alignment": "prior"}),
]


@settings(max_examples=25, deadline=None)
@given(
    variant=st.sampled_from(VARIANTS),
    rows=st.integers(1, 5),
    labels=st.integers(1, 4),
    size=st.sampled_from([0.0, 1.0, 50.0, 1e4]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    seed=st.integers(0, 2**16),
)
def test_loss_and_gradients_are_finite(
    variant: tuple[type[Method], dict[str, Any]],
    rows: int,
    labels: int,
    size: float,
    dtype: torch.dtype,
    seed: int,
) -> None:
    draw = torch.Generator().manual_seed(seed)
    weak, strong = (size * torch.randn(2, rows, labels, generator=draw)).to(dtype)
    strong.requires_grad_()
    cls, changes = variant
    method, terms = loss_of(cls, weak, strong, **changes)
    torch.stack([term.float() for term in terms.values()]).sum().backward()
    assert strong.grad is not None
    assert strong.grad.isfinite().all()
    assert all(torch.isfinite(term) for term in terms.values())
    assert all(buffer.isfinite().all() for name, buffer in method.named_buffers() if name != "rate")


# --------------------------------------------------------------- averages that fit the run's length


def test_the_fitted_momentum_grows_from_a_tenth_to_the_papers_value() -> None:
    at = [momentum_at(torch.tensor(float(t)), 0.999, "fitted") for t in (0, 8, 90, 10**6)]
    # (1 + t) / (10 + t): 1/10, 9/18, 91/100; 1000001/1000010 is above .999
    torch.testing.assert_close(torch.stack(at), torch.tensor([0.1, 0.5, 0.91, 0.999]))
    assert momentum_at(torch.tensor(0.0), 0.999, "paper") == 0.999


@pytest.mark.parametrize(
    "name", [name for name, cls in METHODS.items() if "momentum" in cls.Config.__annotations__]
)
def test_every_running_average_can_be_fitted_or_the_papers(name: str) -> None:
    cls = METHODS[name]
    assert {"averages"} <= set(cls.Config.__annotations__)
    assert cls.Config().averages == "fitted"
    assert any("averages=paper" in text for text in cls.differences)


def test_freematch_leaves_its_first_threshold_behind_in_a_few_steps() -> None:
    weak = torch.tensor([[0.9], [0.8]]).logit()
    method, _ = loss_of(freematch.FreeMatch, weak, weak)
    close(method.thresholds, [0.1 * 0.5 + 0.9 * 0.85])
    paper, _ = loss_of(freematch.FreeMatch, weak, weak, averages="paper")
    close(paper.thresholds, [0.999 * 0.5 + 0.001 * 0.85])


def test_softmatch_weighs_after_few_steps_what_the_papers_momentum_lets_pass() -> None:
    torch.manual_seed(0)
    batch = torch.rand(64, 3).logit()
    weights = {}
    for averages in ("fitted", "paper"):
        method = softmatch.SoftMatch(softmatch.SoftMatch.Config(averages=averages), 3)
        method.setup(pools_of(4, 3))
        for _ in range(30):
            _, weights[averages] = method.weigh(batch)
    # max(q, 1 - q) of uniform q is uniform in [½, 1]: variance 1/48, as the fitted Gaussian has it.
    assert 0.6 < weights["fitted"].mean() < 0.9
    assert weights["paper"].mean() > 0.97


def test_a_gaussian_without_members_does_not_age() -> None:
    """Two Gaussians: the positives' has no member in the first batch, and starts with the second."""
    method = softmatch.SoftMatch(softmatch.SoftMatch.Config(gaussians="two"), 1)
    method.setup(pools_of(4, 1))
    method.weigh(torch.tensor([[0.1], [0.2]]).logit())
    close(method.updates, [[1.0], [0.0]])
    method.weigh(torch.tensor([[0.1], [0.8]]).logit())
    close(method.mu[1], [0.1 * 0.5 + 0.9 * 0.8])
