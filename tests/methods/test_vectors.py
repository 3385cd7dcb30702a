"""What the vectors hold beside results: counts, places, thresholds, factors. None of it is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ssmlbench.core.paths import builtin_root
from ssmlbench.kit.losses import angles
from ssmlbench.kit.pseudo_labels import class_aware_labels, moved_thresholds, nth_largest
from ssmlbench.plugins.loader import load_file
from tests.methods import formulas
from tests.support.vectors import close

bbam = load_file(builtin_root() / "methods" / "bbam.py")
softmatch = load_file(builtin_root() / "methods" / "softmatch.py")
TESTS = Path(__file__).parents[1]


def tensors(values: dict[str, Any], *names: str) -> list[Tensor]:
    return [torch.tensor(values[name], dtype=torch.float64) for name in names]


def test_every_number_of_every_vector_is_named_in_a_test(vectors: dict[str, Any]) -> None:
    source = "".join(file.read_text() for file in TESTS.rglob("test_*.py"))
    for name, vector in vectors.items():
        assert any(part in source for part in (f'"{name}"', f'"{name.partition(".")[2]}"')), name
        for part in ("inputs", "expected"):
            numbers = [key for key, value in vector[part].items() if not isinstance(value, str)]
            assert not [key for key in numbers if f'"{key}"' not in source], name


# ------------------------------------------------------------------------------- BBAM


def test_bbams_prototype_angles_and_balanced_variance(vectors: dict[str, Any]) -> None:
    inputs, expected = (vectors["bbam.angle_stats"][part] for part in ("inputs", "expected"))
    features, targets = tensors(inputs, "features", "targets_minus1_is_masked")
    centres = bbam.class_means(features, targets == 1)
    close(centres, expected["centers"])
    phi = angles(F.normalize(features, dim=1) @ F.normalize(centres, dim=1).T)
    close(phi, expected["angles"])
    start = [torch.full((2, 2), float(inputs[name])) for name in ("init_means", "init_vars")]
    found = torch.stack(start).double()
    for wanted in (expected, expected["second_call_same_data"]):
        found = bbam.released_statistics(phi, targets == 0, targets == 1, found, inputs["gamma"])
        close(found[1].mean(0), wanted["mean_variance"])


def test_bbams_factors(vectors: dict[str, Any]) -> None:
    inputs, expected = (vectors["bbam.transform"][part] for part in ("inputs", "expected"))
    close(bbam.factors(*tensors(inputs, "vars_neg_pos")), [expected["a_neg"], expected["a_pos"]])


def test_the_released_leak_is_a_transform_by_the_hidden_truth(vectors: dict[str, Any]) -> None:
    """With true labels for targets, our functions make the released pseudo-labels, and better ones."""
    inputs, expected = (vectors["bbam.pseudo_label_leak"][part] for part in ("inputs", "expected"))
    cosines, truth, prior = tensors(inputs, "cos", "true_labels_of_unlabelled", "pos_freq")
    statistics = torch.stack(tensors(inputs, "means_neg_pos", "vars_neg_pos"))
    made = {}
    for name, targets in (("leak", truth), ("half", torch.full_like(truth, 0.5))):
        psi = bbam.balanced_angles(angles(cosines), targets, statistics)
        made[name] = class_aware_labels(psi.cos(), prior)[0]
    made["raw"] = class_aware_labels(cosines, prior)[0]
    close(made["leak"], expected["pseudo_labels_released_code_epoch13"], 0)
    close(made["half"], expected["pseudo_labels_no_leak_target_half"], 0)
    changed = int((made["leak"] != made["half"]).sum())
    assert changed == expected["n_entries_changed_leak_vs_half"]
    accuracies = {name: float((labels == truth).double().mean()) for name, labels in made.items()}
    assert accuracies == pytest.approx(
        {
            "leak": expected["accuracy_leak"],
            "half": expected["accuracy_half"],
            "raw": expected["accuracy_raw"],
        }
    )


@pytest.mark.parametrize("name", ["bbam.negative_sampling", "bbam.negative_sampling_no_mask"])
def test_bbams_quota_and_reach_of_negatives(vectors: dict[str, Any], name: str) -> None:
    inputs, expected = (vectors[name][part] for part in ("inputs", "expected"))
    features, centres, targets = tensors(inputs, "features", "centers", "targets")
    if "n_labelled" in inputs:
        (mask,) = tensors(inputs, "pseudo_mask_unlabelled_rows_2_to_7")
        assert torch.equal(targets[inputs["n_labelled"] :] >= 0, mask > 0)
        close((targets == 0).sum(0), expected["num_neg"], 0)
    counts = targets.sum(0).long()  # as the released code counts: -1 takes from the positives
    close(counts, expected["num_pos"], 0)
    cosines = F.normalize(features, dim=1) @ F.normalize(centres, dim=1).T
    kept = bbam.nearest_negatives(cosines, targets == 0, counts, inputs["eta"])
    for k, (index, threshold) in enumerate(
        zip(expected["index"], expected["threshold"], strict=True)
    ):
        taken = cosines[kept[:, k], k]
        if index < 0:
            assert len(taken) == (targets[:, k] == 0).sum()  # a count of 0 keeps all of them
        else:
            assert len(taken) == index + 1
            assert float(taken.min()) == pytest.approx(threshold, abs=2e-5)


# ------------------------------------------------------------------------------- CAP


@pytest.mark.parametrize("name", ["bbam.pseudo_label_first_semi_epoch", "cap.pseudo_label_partial"])
def test_caps_places(vectors: dict[str, Any], name: str) -> None:
    """Places count from 0; neither vector has ties, and its trusted groups do not meet."""
    inputs, expected = (vectors[name][part] for part in ("inputs", "expected"))
    outputs, prior, rest = tensors(
        inputs, "cos" if "cos" in inputs else "logits", "pos_freq", "neg_freq"
    )
    close(prior + rest, [1.0, 1.0])
    shares = inputs["pos_per"], inputs["neg_per"]
    targets, trust = class_aware_labels(outputs, prior, *shares)
    places = torch.tensor(expected["pos_index"]) + 1
    assert targets.sum(0).tolist() == places.tolist()
    negative = (trust * (1 - targets)).sum(0)
    assert negative.tolist() == [index + 1 for index in expected["neg_index"]]
    if "threshold_prob" in expected:
        close(nth_largest(outputs.sigmoid(), places), expected["threshold_prob"])


def test_caps_count_of_zero_is_the_released_index_of_minus_one(vectors: dict[str, Any]) -> None:
    inputs, expected = (
        vectors["cap.pseudo_label_index_pitfall"][part] for part in ("inputs", "expected")
    )
    scores = torch.rand(inputs["n_unlabelled"], 1, generator=torch.Generator().manual_seed(0))
    targets, _ = class_aware_labels(scores, torch.tensor([inputs["pos_freq"]]).double())
    assert int(targets.sum()) - 1 == expected["index"]


# ------------------------------------------------------------------------------- FlatMatch


def test_the_single_label_parts_of_flatmatch_that_have_no_place_here(
    vectors: dict[str, Any],
) -> None:
    """SAT and SAF as released: τ and the mean rate by our running averages, the rest as it is written."""
    inputs, expected = (
        vectors["flatmatch.official_sat_saf"][part] for part in ("inputs", "expected")
    )
    weak, strong, rate, hist = tensors(inputs, "weak_logits", "strong_logits", "p", "hist")
    q, m = weak.softmax(1), inputs["ema"]
    tau = moved_thresholds(torch.tensor(inputs["tau"]).double(), q.amax(1), m)
    rate = softmatch.moved_rate(rate, q, m)
    best = q.argmax(1)
    hist = softmatch.moved_rate(hist, F.one_hot(best, 3).double(), m)
    close(tau, expected["tau_new"])
    close(rate, expected["p_new"])
    close(hist, expected["hist_new"])
    mask = q.amax(1) >= tau * (rate / rate.max())[best]
    close(mask, expected["mask"], 0)
    losses = -strong.log_softmax(1)[torch.arange(3), best]
    close((mask * losses).mean(), expected["sat_loss"])
    used = strong.softmax(1)[mask]
    counts = F.one_hot(used.argmax(1), 3).double().mean(0)
    towards = torch.where(counts > 0, used.mean(0) / counts, 0.0)
    towards = towards / towards.sum()
    wanted = rate / hist / (rate / hist).sum()
    close((wanted * torch.log(towards + 1e-9)).sum(), expected["saf_loss"])


# ------------------------------------------------------------------------------- one entry


@pytest.mark.parametrize("name", ["ls", "n_ls"])
def test_smoothed_targets(vectors: dict[str, Any], name: str) -> None:
    inputs, expected = (vectors[f"baseline.{name}"][part] for part in ("inputs", "expected"))
    p, observed = tensors(inputs, "prob", "obs")
    low = inputs["eps"]
    high = 1 - low if name == "ls" else 1.0
    entries = torch.where(observed == 1, formulas.soft(p, high), formulas.soft(p, low))
    close(entries, expected["loss_matrix"])
