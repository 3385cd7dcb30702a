"""MIME: the bottleneck's loss, codes that are sampled only in training, and growing positives."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmlbench.checks.toy import spec_for, toy, train
from ssmlbench.core.paths import builtin_root
from ssmlbench.kit.losses import soft_loss
from ssmlbench.kit.pools import Batch, Forward, Pool, Pools
from ssmlbench.plugins.loader import load_file
from tests.support.vectors import close

mime = load_file(builtin_root() / "methods" / "mime.py")
Mime = mime.Mime


def pool_with(observed: list[list[int]], logits: list[list[float]]) -> Pool:
    labels = len(observed[0]) if observed else 2
    return Pool(
        torch.tensor(observed, dtype=torch.int8).reshape(-1, labels),
        torch.full((labels,), 0.5).double(),
        lambda model, view, wanted: {"logits": torch.tensor(logits).reshape(-1, labels)},
    )


# ------------------------------------------------------------------------------- vectors


def test_the_loss_is_the_entry_loss_and_a_small_part_of_the_divergence(
    vectors: dict[str, Any],
) -> None:
    vector = vectors["mime.vib_loss"]
    values = {name: torch.tensor(value) for name, value in vector["inputs"].items()}
    entries = soft_loss(values["prob"].logit(), values["labels"]).mean()
    divergence = mime.kl(values["mu"], values["std"]).mean()
    close(entries, vector["expected"]["ce_mean"])
    close(divergence, vector["expected"]["kl_mean_over_all_entries"])
    close(entries + values["beta"] * divergence, vector["expected"]["total"])


def test_positives_are_added_and_never_withdrawn(vectors: dict[str, Any]) -> None:
    vector = vectors["mime.pseudo_label_update"]
    obs, prob = (torch.tensor(vector["inputs"][name]) for name in ("obs", "prob"))
    after = mime.add_confident_(obs, prob, vector["inputs"]["theta"])
    close(after, vector["expected"]["obs_after"])
    expected = after.tolist()
    close(mime.add_confident_(after, torch.zeros_like(prob), 0.95), expected)


def test_deviations_are_a_softplus(vectors: dict[str, Any]) -> None:
    vector = vectors["mime.softplus_std"]
    close(mime.deviations(torch.tensor(vector["inputs"]["raw"])), vector["expected"]["std"])


# ------------------------------------------------------------------------------- behaviour


def test_the_method_computes_the_vector_from_its_batches(vectors: dict[str, Any]) -> None:
    vector = vectors["mime.vib_loss"]
    values = {name: torch.tensor(value) for name, value in vector["inputs"].items()}
    outputs = {
        "logits": values["prob"].logit(),
        "divergence": mime.kl(values["mu"], values["std"]),
    }
    forward = Forward(
        lambda rows: {name: value[rows] for name, value in outputs.items()},
        {("labelled", "strong"): torch.tensor([0]), ("unlabelled", "strong"): torch.tensor([1])},
    )
    observed = values["labels"].char()
    labelled = Batch("labelled", torch.tensor([0]), observed[:1], forward, forward)
    unlabelled = Batch("unlabelled", torch.tensor([0]), observed[1:] * 0 - 1, forward, forward)
    method = Mime(Mime.Config(), 2)
    method.labelled_targets, method.targets = values["labels"][:1], values["labels"][1:]
    terms = method.loss(labelled, unlabelled)
    close(terms["labelled"] + terms["unlabelled"], vector["expected"]["ce_mean"])
    close(sum(terms.values()), vector["expected"]["total"])


def test_known_entries_keep_their_label_and_unknown_ones_may_become_positive() -> None:
    sure = [[9.0, 9.0, -9.0]]
    pools = Pools(pool_with([[0, -1, 1]], sure), pool_with([[-1, -1, -1]], sure), epoch=1)
    method = Mime(Mime.Config(), 3)
    method.setup(pools)
    assert method.labelled_targets.tolist() == [[0, 0, 1]]
    method.start_epoch(pools)
    assert method.labelled_targets.tolist() == [[0, 1, 1]]
    assert method.targets.tolist() == [[1, 1, 0]]


def test_a_pool_without_unlabelled_rows_is_borne() -> None:
    pools = Pools(pool_with([[1, -1]], [[0.0, 9.0]]), pool_with([], []), epoch=1)
    method = Mime(Mime.Config(), 2)
    method.setup(pools)
    method.start_epoch(pools)
    assert method.labelled_targets.tolist() == [[1, 1]]
    assert method.targets.shape == (0, 2)


def test_assumed_negatives_wait_for_the_authors_warm_up() -> None:
    sure = [[9.0, 9.0]]
    pools = Pools(pool_with([[1, 0]], sure), pool_with([[-1, -1]], sure))
    method = Mime(Mime.Config(reading="an", warmup_epochs=2), 2)
    method.setup(pools)
    grown = []
    for pools.epoch in (1, 2, 3):
        method.start_epoch(pools)
        grown.append(method.targets.tolist())
    assert grown == [[[0, 0]], [[0, 0]], [[1, 1]]]


def test_unlabelled_rows_are_there_from_the_first_step_only_if_assumed_negative() -> None:
    spec, data = spec_for(Mime, "semi"), toy("vector")
    excluded = train(Mime, data, spec).history
    assumed = train(
        Mime, data, dataclasses.replace(spec, config={**spec.config, "reading": "an"})
    ).history
    assert [row["epoch"] for row in excluded if "loss_unlabelled" in row] == [3, 4, 5]
    assert all("loss_unlabelled" in row for row in assumed)


def test_codes_are_sampled_in_training_and_their_mean_is_used_otherwise() -> None:
    torch.manual_seed(0)
    head, features = mime.CodeHead(6, 8, 4, 3), torch.randn(5, 6)
    assert head(features)["logits"].shape == (5, 3)
    assert head(features)["divergence"].shape == (5,)
    assert not torch.equal(head(features)["logits"], head(features)["logits"])
    head.eval()
    mean = head.codes(head.hidden(features)).unflatten(1, (3, 8))[..., :4]
    torch.testing.assert_close(head(features)["logits"], head.classify(mean).squeeze(2))


@pytest.mark.parametrize("regime", ["single-positive", "full"])
def test_every_row_may_be_labelled(regime: str) -> None:
    outcome = train(Mime, toy("vector"), spec_for(Mime, regime))
    assert np.isfinite(outcome.scores).all()
    assert "loss_unlabelled" not in outcome.history[-1]


@settings(max_examples=25, deadline=None)
@given(
    size=st.sampled_from([0.0, 1.0, 100.0, 1e4]),
    positive=st.sampled_from([0.0, 0.5, 1.0]),
    rows=st.integers(1, 4),
    labels=st.integers(1, 3),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    seed=st.integers(0, 2**16),
)
def test_loss_and_gradients_are_finite(
    size: float, positive: float, rows: int, labels: int, dtype: torch.dtype, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    logits = (size * torch.randn(rows, labels, generator=draw)).to(dtype).requires_grad_()
    mean, raw = (size * torch.randn(2, rows, labels, 4, generator=draw)).to(dtype)
    mean.requires_grad_(), raw.requires_grad_()
    targets = (torch.rand(rows, labels, generator=draw) < positive).float()
    loss = soft_loss(logits, targets).mean() + mime.kl(mean, mime.deviations(raw)).mean()
    loss.backward()
    assert loss.isfinite()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in (logits, mean, raw))
