"""BBAM's formulas against the vectors: the paper's form, and the released code's as options."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from ssmlbench.core.paths import builtin_root
from ssmlbench.kit.losses import angles
from ssmlbench.kit.pseudo_labels import class_aware_labels
from ssmlbench.plugins.loader import load_file

bbam = load_file(builtin_root() / "methods" / "bbam.py")
TOLERANCE = 2e-5


def close(found: Tensor, expected: Any) -> bool:
    return torch.allclose(found, torch.tensor(expected), atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize(
    ("name", "margin"), [("bbam.bam_loss_paper", "both"), ("bbam.bam_loss_code", "positives")]
)
def test_the_margin_loss(vectors: dict[str, Any], name: str, margin: str) -> None:
    given_, expected = vectors[name]["inputs"], vectors[name]["expected"]
    cosines, y = torch.tensor(given_["cos"]), torch.tensor(given_["y"])
    found = bbam.margin_loss(cosines, y, given_["s"], given_["m"], margin)
    assert close(found, expected["loss_matrix"])
    if margin == "both":
        assert float(found.mean()) == pytest.approx(expected["mean_over_BK"], abs=TOLERANCE)
    else:
        assert float(found.sum()) == pytest.approx(expected["sum"], abs=TOLERANCE)


def statistics(vector: dict[str, Any]) -> Tensor:
    return torch.tensor([vector["means_neg_pos"], vector["vars_neg_pos"]])


def test_the_transform_and_its_loss(vectors: dict[str, Any]) -> None:
    given_, expected = vectors["bbam.transform"]["inputs"], vectors["bbam.transform"]["expected"]
    theta = angles(torch.tensor(given_["cos"]))
    targets = torch.tensor(given_["target"])
    psi = bbam.balanced_angles(theta, targets, statistics(given_))
    assert close(theta, expected["theta"])
    assert close(psi, expected["psi"])
    assert close(psi.cos(), expected["cos_psi"])
    released = bbam.margin_loss(psi.cos()[:2], targets[:2], given_["s"], given_["m"], "positives")
    assert close(released, expected["code_loss_first_two_rows"])


def prototype_angles(features: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    centres = bbam.class_means(features, positive)
    return centres, angles(F.normalize(features, dim=1) @ F.normalize(centres, dim=1).T)


def test_statistics_of_the_paper(vectors: dict[str, Any]) -> None:
    vector = vectors["bbam.angle_stats_paper"]
    features, targets = (torch.tensor(vector["inputs"][k]) for k in ("features", "targets"))
    kept = torch.tensor(vector["inputs"]["beta"]).bool()
    positive = targets == 1
    centres, phi = prototype_angles(features, positive)
    means, variances = bbam.angle_statistics(phi, (targets == 0) & kept, positive)
    assert close(centres, vector["expected"]["centers"])
    assert close(means, vector["expected"]["means_neg_pos"])
    assert close(variances, vector["expected"]["variances_neg_pos"])
    assert close(variances.mean(0), vector["expected"]["balanced_variance"])


def test_statistics_of_the_released_code_over_two_epochs(vectors: dict[str, Any]) -> None:
    vector, gamma = vectors["bbam.angle_stats"], vectors["bbam.angle_stats"]["inputs"]["gamma"]
    features = torch.tensor(vector["inputs"]["features"])
    targets = torch.tensor(vector["inputs"]["targets_minus1_is_masked"])
    _, phi = prototype_angles(features, targets == 1)
    groups = (targets == 0, targets == 1)
    first = bbam.released_statistics(phi, *groups, torch.zeros(2, 2, 2), gamma)
    second = bbam.released_statistics(phi, *groups, first, gamma)
    for found, expected in (
        (first, vector["expected"]),
        (second, vector["expected"]["second_call_same_data"]),
    ):
        assert close(found[0], expected["means"])
        assert close(found[1], expected["variances"])


def test_negative_sampling(vectors: dict[str, Any]) -> None:
    vector = vectors["bbam.negative_sampling_no_mask"]
    features, centres, targets = (
        torch.tensor(vector["inputs"][k]) for k in ("features", "centers", "targets")
    )
    cosines = F.normalize(features, dim=1) @ F.normalize(centres, dim=1).T
    positive = targets == 1
    kept = bbam.nearest_negatives(cosines, targets == 0, positive.sum(0), vector["inputs"]["eta"])
    assert (kept | positive).float().tolist() == vector["expected"]["mask_ns"]


def test_negative_sampling_as_released_counts_masked_entries_against_the_positives(
    vectors: dict[str, Any],
) -> None:
    vector = vectors["bbam.negative_sampling"]
    features, centres, targets = (
        torch.tensor(vector["inputs"][k]) for k in ("features", "centers", "targets")
    )
    cosines = F.normalize(features, dim=1) @ F.normalize(centres, dim=1).T
    known = targets >= 0
    counts = (targets == 1).sum(0) - (~known).sum(0)
    assert counts.tolist() == vector["expected"]["num_pos"]
    kept = bbam.nearest_negatives(cosines, targets == 0, counts, vector["inputs"]["eta"])
    found = (kept | (targets == 1)).float()
    # The released mask is 1 at the masked entry too; its loss is masked away elsewhere.
    expected = torch.tensor(vector["expected"]["mask_ns"]) * known
    assert found.tolist() == expected.tolist()


def test_no_label_independent_transform_changes_the_pseudo_labels(vectors: dict[str, Any]) -> None:
    vector = vectors["bbam.pseudo_label_leak"]
    given_ = vector["inputs"]
    cosines, prior = torch.tensor(given_["cos"]), torch.tensor(given_["pos_freq"]).double()
    raw, _ = class_aware_labels(cosines, prior)
    halves = torch.full_like(cosines, 0.5)
    psi = bbam.balanced_angles(angles(cosines), halves, statistics(given_))
    transformed, _ = class_aware_labels(psi.cos(), prior)
    assert raw.tolist() == vector["expected"]["pseudo_labels_raw_cos"]
    assert transformed.tolist() == raw.tolist()
    assert raw.tolist() != vector["expected"]["pseudo_labels_released_code_epoch13"]


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(0, 2**31),
    st.sampled_from(["both", "positives"]),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_the_balanced_loss_is_finite_whatever_the_groups(
    n: int, labels: int, seed: int, margin: str, frequency: float
) -> None:
    torch.manual_seed(seed)
    cosines = torch.empty(n, labels).uniform_(-1, 1).sign().requires_grad_()  # exactly ±1
    targets = (torch.rand(n, labels) < frequency).float()
    phi = torch.rand(n, labels).round(decimals=1)
    found = bbam.angle_statistics(phi, targets == 0, targets == 1)
    loss = bbam.margin_loss(
        bbam.balanced_angles(angles(cosines), targets, found).cos(), targets, 20, 0.4, margin
    )
    loss.sum().backward()
    assert loss.isfinite().all()
    assert cosines.grad is not None
    assert cosines.grad.isfinite().all()
