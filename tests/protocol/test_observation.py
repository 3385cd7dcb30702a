"""The protocol: which labels are seen in each regime, and that the rest stays sealed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import RunSpec
from ssmlbench.protocol.observation import observe
from ssmlbench.protocol.regimes import split_rows
from ssmlbench.protocol.sealed import SealedTruth

RANDOM = np.random.default_rng(0)
TRUTH = (RANDOM.random((400, 6)) < [0.5, 0.3, 0.2, 0.1, 0.05, 0.02]).astype(np.int8)
SEMI = RunSpec("bce", "toy", pi=0.1)


def of(regime: str, **changes: Any) -> RunSpec:
    return dataclasses.replace(SEMI, regime=regime, pi=None, **changes)  # type: ignore[arg-type]


def test_the_labelled_rows_are_the_papers_draw(vectors: dict[str, Any]) -> None:
    vector = vectors["protocol.labelled_subset"]
    n, pi = vector["inputs"]["n_train"], vector["inputs"]["lb_ratio"]
    truth = np.zeros((n, 1), dtype=np.int8)
    one, _ = split_rows(truth, pi, "random", 1)
    thousand, _ = split_rows(truth, pi, "random", 1000)
    assert len(one) == vector["expected"]["n_lb"]
    assert one[:5].tolist() == vector["expected"]["first5_seed1"]
    assert thousand[:5].tolist() == vector["expected"]["first5_seed1000"]
    assert len(set(one) & set(thousand)) == vector["expected"]["overlap_seed1_vs_seed1000"]


def test_in_semi_labelled_rows_are_known_and_the_rest_is_unknown() -> None:
    seen = observe(TRUTH, SEMI)
    assert len(seen.labelled) == 40
    assert sorted([*seen.labelled, *seen.unlabelled]) == list(range(400))
    assert np.array_equal(seen.labels[seen.labelled], TRUTH[seen.labelled])
    assert (seen.labels[seen.unlabelled] == -1).all()
    assert np.allclose(seen.prior, TRUTH[seen.labelled].mean(axis=0))


def test_in_single_positive_every_row_keeps_one_of_its_positives() -> None:
    seen = observe(TRUTH, of("single-positive"))
    assert not (seen.labels == 0).any()
    assert (TRUTH[seen.labels == 1] == 1).all()
    assert np.array_equal((seen.labels == 1).sum(axis=1), (TRUTH.sum(axis=1) > 0).astype(int))
    assert len(seen.labelled) == 400
    assert len(seen.unlabelled) == 0


def test_in_single_positive_each_positive_is_equally_likely() -> None:
    truth = np.ones((3000, 3), dtype=np.int8)
    kept = (observe(truth, of("single-positive")).labels == 1).mean(axis=0)
    assert np.allclose(kept, 1 / 3, atol=0.03)  # 3.5 standard deviations


def test_in_partial_positive_each_positive_is_kept_with_the_share() -> None:
    truth = np.ones((3000, 3), dtype=np.int8)
    seen = observe(truth, of("partial-positive", share=0.4))
    assert np.isclose((seen.labels == 1).mean(), 0.4, atol=0.02)
    assert not (seen.labels == 0).any()
    assert np.allclose(seen.prior, 1.0, atol=0.06)  # the share is known to the protocol


def test_in_single_positive_negatives_all_but_the_other_positives_is_known() -> None:
    seen = observe(TRUTH, of("single-positive-negatives"))
    alone = observe(TRUTH, of("single-positive"))
    assert np.array_equal(seen.labels == 1, alone.labels == 1)  # the same draw
    assert np.array_equal(seen.labels == 0, TRUTH == 0)
    assert (TRUTH[seen.labels == -1] == 1).all()
    assert len(seen.labelled) == 400
    kept, negatives = (alone.labels == 1).sum(axis=0), (TRUTH == 0).sum(axis=0)
    assert np.allclose(seen.prior, kept / (kept + negatives))


def test_in_partial_each_entry_is_kept_with_the_share() -> None:
    truth = (np.random.default_rng(1).random((4000, 3)) < 0.3).astype(np.int8)
    seen = observe(truth, of("partial", share=0.4))
    known = seen.labels != -1
    assert np.array_equal(seen.labels[known], truth[known])
    for value in (0, 1):  # positives and negatives alike; 3.5 standard deviations
        assert np.isclose(known[truth == value].mean(), 0.4, atol=0.03)
    assert np.allclose(seen.prior, 0.3, atol=0.045)
    positives = observe(truth, of("partial-positive", share=0.4)).labels
    assert np.array_equal(positives == 1, seen.labels == 1)  # the same draw
    assert len(seen.unlabelled) == 0


@pytest.mark.parametrize("regime", ["single-positive-negatives", "partial"])
def test_what_a_regime_hides_changes_nothing_that_is_observed(regime: str) -> None:
    spec = of(regime, share=0.5 if regime == "partial" else None)
    seen = observe(TRUTH, spec)
    assert (seen.labels == -1).any()
    if regime == "partial":  # in the other regime every hidden entry is a positive
        scrambled = np.where(seen.labels >= 0, TRUTH, 1 - TRUTH).astype(np.int8)
        assert observe(scrambled, spec).digest == seen.digest


def test_in_full_everything_is_known() -> None:
    seen = observe(TRUTH, of("full"))
    assert np.array_equal(seen.labels, TRUTH)
    assert np.allclose(seen.prior, TRUTH.mean(axis=0))


def test_seeds_differ_and_repeat() -> None:
    again, other = observe(TRUTH, SEMI), observe(TRUTH, dataclasses.replace(SEMI, seed=1))
    assert observe(TRUTH, SEMI).digest == again.digest
    assert again.digest != other.digest


def test_a_stratified_split_keeps_the_label_frequencies_closer_than_a_random_one() -> None:
    def distance(split: str) -> float:
        draws = [split_rows(TRUTH, 0.1, split, seed)[0] for seed in range(10)]
        off = [abs(TRUTH[rows].mean(axis=0) - TRUTH.mean(axis=0)).sum() for rows in draws]
        return float(np.mean(off))

    assert distance("stratified") < 0.5 * distance("random")
    labelled, unlabelled = split_rows(TRUTH, 0.1, "stratified", 0)
    assert sorted([*labelled, *unlabelled]) == list(range(400))


def test_validation_rows_leave_the_labelled_pool_only() -> None:
    plain, held = observe(TRUTH, SEMI), observe(TRUTH, dataclasses.replace(SEMI, selection="val"))
    assert len(held.validation) == 8  # 20 % of 40
    assert sorted([*held.labelled, *held.validation]) == sorted(plain.labelled)
    assert np.array_equal(held.unlabelled, plain.unlabelled)


def test_a_fraction_of_less_than_one_row_is_refused() -> None:
    with pytest.raises(UserError, match="is not one row"):
        observe(TRUTH, dataclasses.replace(SEMI, pi=0.001))


def test_labels_without_a_labelled_positive_are_found() -> None:
    truth = TRUTH.copy()
    truth[:, 2] = 0
    assert 2 in observe(truth, SEMI).labels_without_positive


def test_hidden_labels_change_nothing_that_is_observed() -> None:
    seen = observe(TRUTH, SEMI)
    scrambled = np.where(seen.labels >= 0, TRUTH, 1 - TRUTH).astype(np.int8)
    assert observe(scrambled, SEMI).digest == seen.digest


def test_the_audit_grades_trusted_positives() -> None:
    # rows 0 and 2 of the truth; one trusted hit, one trusted miss, one hit that is not trusted
    audit = SealedTruth(np.array([[1, 0], [0, 0], [1, 1]], dtype=np.int8))
    positive = np.array([[True, True], [True, False]])
    trusted = np.array([[True, True], [False, True]])
    quality = audit.pseudo_label_quality(np.array([0, 2]), positive, trusted)
    assert quality["pseudo_precision"] == pytest.approx(1 / 2)
    assert quality["pseudo_recall"] == pytest.approx(1 / 3)
    assert quality["pseudo_trusted"] == pytest.approx(3 / 4)
