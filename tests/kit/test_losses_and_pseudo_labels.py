"""Entry losses and class-aware pseudo-labels against the papers' code (vectors) and by property."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ssmlbench.kit.losses import angles, asymmetric_loss, bce
from ssmlbench.kit.pseudo_labels import class_aware_labels
from tests.support.vectors import TOLERANCE, close


def inputs(vector: dict[str, Any], *names: str) -> list[Tensor]:
    return [torch.tensor(vector["inputs"][name]) for name in names]


def test_bce(vectors: dict[str, Any]) -> None:
    logits, y = inputs(vectors["cap.bce"], "logits", "y")
    close(bce(logits, y), vectors["cap.bce"]["expected"]["loss_matrix"])


def test_asl_as_cap_uses_it(vectors: dict[str, Any]) -> None:
    vector = vectors["cap.asl_4_0_005"]
    logits, y = inputs(vector, "logits", "y")
    found = asymmetric_loss(logits, y, 4, 0, 0.05)
    close(found, vector["expected"]["loss_matrix"])
    assert float(found.sum()) == pytest.approx(vector["expected"]["sum"], abs=TOLERANCE)


def test_asl_with_a_detached_focusing_weight_has_the_official_gradients(
    vectors: dict[str, Any],
) -> None:
    vector = vectors["baseline.asl_4_1_005"]
    logits, y = inputs(vector, "logits", "y")
    logits.requires_grad_()
    found = asymmetric_loss(logits, y, 4, 1, 0.05)
    found.sum().backward()
    close(found.detach(), vector["expected"]["loss_matrix"])
    assert logits.grad is not None
    close(logits.grad, vector["expected"]["grad_logits_focal_weight_detached"])


def test_asl_with_equal_gammas_and_no_clip_is_the_focal_loss(vectors: dict[str, Any]) -> None:
    vector = vectors["baseline.focal_g2"]
    p, y = inputs(vector, "prob", "y")
    close(asymmetric_loss(p.logit(), y, 2, 2, 0), vector["expected"]["loss_matrix"])


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.floats(-1e4, 1e4),
    st.floats(0, 1),
    st.sampled_from([(4.0, 0.0, 0.05), (2.0, 2.0, 0.0), (0.0, 0.0, 0.0)]),
)
def test_losses_and_their_gradients_stay_finite(
    dtype: torch.dtype, logit: float, target: float, gammas: tuple[float, float, float]
) -> None:
    for loss in (bce, lambda z, y: asymmetric_loss(z, y, *gammas)):
        logits = torch.tensor([[logit, 0.0, -logit]], dtype=dtype, requires_grad=True)
        targets = torch.tensor([[round(target), target, 1 - round(target)]])
        entries = loss(logits, targets)
        entries.sum().backward()
        assert entries.isfinite().all()
        assert logits.grad is not None
        assert logits.grad.isfinite().all()


def test_angles_have_finite_slopes_at_both_ends() -> None:
    cosines = torch.tensor([-1.0, 0.0, 1.0], requires_grad=True)
    angles(cosines).sum().backward()
    assert cosines.grad is not None
    assert cosines.grad.isfinite().all()


def test_class_aware_labels_as_cap_with_partial_trust(vectors: dict[str, Any]) -> None:
    vector = vectors["cap.pseudo_label_partial"]
    logits, prior = inputs(vector, "logits", "pos_freq")
    shares = vector["inputs"]["pos_per"], vector["inputs"]["neg_per"]
    targets, trust = class_aware_labels(logits.sigmoid(), prior, *shares)
    assert targets.tolist() == vector["expected"]["pseudo_labels"]
    assert trust.tolist() == vector["expected"]["mask"]


def test_class_aware_labels_as_bbams_first_semi_supervised_epoch(vectors: dict[str, Any]) -> None:
    vector = vectors["bbam.pseudo_label_first_semi_epoch"]
    cosines = torch.tensor(vector["inputs"]["cos"])
    prior = torch.tensor(vector["inputs"]["pos_freq"], dtype=torch.float64)
    targets, trust = class_aware_labels(cosines, prior, 1.0, 0.998)
    assert targets.tolist() == vector["expected"]["pseudo_labels"]
    assert trust.tolist() == vector["expected"]["mask"]


def test_a_label_whose_count_truncates_to_zero_gets_no_positive(vectors: dict[str, Any]) -> None:
    vector = vectors["cap.pseudo_label_index_pitfall"]["inputs"]
    scores = torch.rand(vector["n_unlabelled"], 1)
    targets, trust = class_aware_labels(scores, torch.tensor([vector["pos_freq"]]))
    assert targets.sum() == 0
    assert trust.sum() == int(0.998 * (1 - vector["pos_freq"]) * vector["n_unlabelled"])


def test_an_empty_pool_has_empty_labels() -> None:
    targets, trust = class_aware_labels(torch.zeros(0, 3), torch.full((3,), 0.5))
    assert targets.shape == trust.shape == (0, 3)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 60), st.integers(1, 5), st.integers(0, 2**31), st.floats(0, 1), st.floats(0, 1)
)
def test_class_aware_labels_follow_capss_indices_column_by_column(
    n: int, labels: int, seed: int, positive_share: float, negative_share: float
) -> None:
    random = np.random.default_rng(seed)
    scores = np.round(random.random((n, labels)), 1)  # many ties
    prior = random.random(labels)
    targets, trust = class_aware_labels(
        torch.from_numpy(scores), torch.from_numpy(prior), positive_share, negative_share
    )
    for k in range(labels):  # the rule as it is written, one label at a time
        down, up = np.sort(scores[:, k])[::-1], np.sort(scores[:, k])
        count, sure = int(prior[k] * n), int(positive_share * prior[k] * n)
        low = int(negative_share * (1 - prior[k]) * n)
        positive = scores[:, k] >= down[count - 1] if count else np.zeros(n, dtype=bool)
        trusted = np.zeros(n, dtype=bool)
        if sure:
            trusted |= scores[:, k] >= down[sure - 1]
        if low:
            trusted |= scores[:, k] <= up[low - 1]
        assert np.array_equal(targets[:, k].numpy(), positive)
        assert np.array_equal(trust[:, k].numpy(), trusted)
