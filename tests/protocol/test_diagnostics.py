"""What the judge notes of training, against hand-worked cases and independent implementations."""

from __future__ import annotations

import dataclasses
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix
from sklearn.metrics.pairwise import cosine_similarity

from ssmlbench.core.errors import RunFailed
from ssmlbench.core.spec import RunSpec
from ssmlbench.protocol import matrices
from ssmlbench.protocol.diagnostics import (
    ANGLE_COLUMNS,
    CALIBRATION_BINS,
    SAMPLED_ROWS,
    Records,
    angle_statistics,
    calibration_counts,
    group_histograms,
    label_counts,
    pseudo_label_counts,
    sampled_rows,
)
from ssmlbench.protocol.judge import Judge
from ssmlbench.protocol.observation import observe
from ssmlbench.protocol.sealed import SealedTruth

RANDOM = np.random.default_rng(5)
FEATURES = RANDOM.normal(size=(60, 7)).astype(np.float32)
TRUTH = (RANDOM.random((60, 4)) < [0.5, 0.3, 0.1, 0.0]).astype(np.int8)


def named(rows: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(ANGLE_COLUMNS, rows, strict=True))


def test_the_angles_of_a_case_worked_by_hand() -> None:
    # Positives at 0° and 90°: the prototype is at 45°, both are 45° from it. The negatives are at
    # 135° and 180°: 90° and 135° from it; the variance of the two is (π/4)² / 2.
    features = np.array([[1, 0], [0, 1], [-1, 1], [-1, 0]], dtype=np.float32)
    positive = np.array([[True], [True], [False], [False]])
    found = named(angle_statistics(features, positive, ~positive))
    assert found["mean_pos"][0] == pytest.approx(math.pi / 4)
    assert found["var_pos"][0] == pytest.approx(0, abs=1e-12)
    assert found["mean_neg"][0] == pytest.approx(5 * math.pi / 8)
    assert found["var_neg"][0] == pytest.approx((math.pi / 4) ** 2 / 2)
    assert [found["count_pos"][0], found["count_neg"][0]] == [2, 2]


def test_the_angles_are_those_of_sklearn_and_numpy_label_by_label() -> None:
    known = RANDOM.random(TRUTH.shape) < 0.8
    positive, negative = known & (TRUTH == 1), known & (TRUTH == 0)
    found = named(angle_statistics(FEATURES, positive, negative))
    for label in range(3):
        prototype = FEATURES[positive[:, label]].mean(axis=0, keepdims=True)
        angles = np.arccos(cosine_similarity(FEATURES, prototype)[:, 0])
        for name, member in (("pos", positive), ("neg", negative)):
            chosen = angles[member[:, label]]
            assert found[f"mean_{name}"][label] == pytest.approx(chosen.mean(), rel=1e-4)
            assert found[f"var_{name}"][label] == pytest.approx(chosen.var(ddof=1), rel=1e-3)
    assert np.isnan(found["var_neg"][3])  # a label without positives has no prototype
    assert found["count_pos"][3] == 0


def test_a_label_with_one_positive_has_no_variance_of_positives() -> None:
    positive = np.zeros((60, 1), dtype=bool)
    positive[3] = True
    found = named(angle_statistics(FEATURES, positive, ~positive))
    assert found["mean_pos"][0] == pytest.approx(0, abs=1e-3)
    assert np.isnan(found["var_pos"][0])
    assert found["var_neg"][0] > 0


def test_pseudo_labels_are_counted_as_a_confusion_matrix_of_trusted_entries() -> None:
    positive, trusted = RANDOM.random(TRUTH.shape) < 0.4, RANDOM.random(TRUTH.shape) < 0.7
    counts = pseudo_label_counts(TRUTH, positive, trusted)
    for label in range(4):
        rows = trusted[:, label]
        matrix = confusion_matrix(TRUTH[rows, label], positive[rows, label], labels=[0, 1])
        (tn, fp), (_, tp) = matrix
        expected = [rows.sum(), tp + fp, tp, TRUTH[:, label].sum(), tp + tn]
        assert counts[:, label].tolist() == expected


def test_entries_whose_truth_nobody_knows_are_not_counted() -> None:
    truth = np.array([[1], [-1], [0]], dtype=np.int8)
    everything = np.ones((3, 1), dtype=bool)
    assert pseudo_label_counts(truth, everything, everything)[:, 0].tolist() == [2, 2, 1, 1, 1]
    scores = np.array([[0.95], [0.95], [0.05]], dtype=np.float32)
    assert calibration_counts(scores, truth)[0].sum() == 2


def test_the_reliability_curve_is_that_of_sklearn() -> None:
    scores = RANDOM.random((200, 1)).astype(np.float32)
    truth = (RANDOM.random((200, 1)) < scores).astype(np.int8)
    count, total, true = calibration_counts(scores, truth)[:, :, 0]
    share, mean = calibration_curve(truth[:, 0], scores[:, 0], n_bins=CALIBRATION_BINS)
    assert np.allclose(true / count, share)
    assert np.allclose(total / count, mean, rtol=1e-5)


def test_groups_are_counted_apart() -> None:
    values = np.array([[0.9, 0.1], [0.8, 0.2]], dtype=np.float32)
    truth = np.array([[1, 0], [1, 0]], dtype=np.int8)
    observed = np.array([[1, -1], [-1, 0]], dtype=np.int8)
    known, hidden, negatives = group_histograms(values, observed, truth, 0, 1)
    assert [known.sum(), hidden.sum(), negatives.sum()] == [1, 1, 2]
    assert known[45] == 1  # 0.9 of 50 bins
    assert hidden[40] == 1


def test_labels_and_pairs_are_counted() -> None:
    truth = np.array([[1, 1, 0], [1, 0, 0], [-1, 1, 1]], dtype=np.int8)
    counts = label_counts(truth)
    assert counts["label_counts"].tolist() == [2, 2, 1]
    assert counts["pair_counts"].tolist() == [[2, 1, 0], [1, 2, 1], [0, 1, 1]]


def test_counts_of_many_rows_are_made_in_blocks_that_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(0)
    truth = random.integers(-1, 2, (4000, 20)).astype(np.int8)
    positive, trusted = (random.random(truth.shape) < 0.3 for _ in range(2))
    rows = random.permutation(4000)
    sealed = SealedTruth(truth[np.argsort(rows)])

    def found() -> list[Any]:
        single = trusted[:, :1]
        quality = [sealed.pseudo_label_quality(rows, positive, t) for t in (trusted, single)]
        counts = [pseudo_label_counts(truth, positive, t) for t in (trusted, single)]
        return [*quality, *counts, *label_counts(truth).values()]

    whole = found()
    right = (positive & trusted & (truth == 1)).sum()
    assert whole[0] == {
        "pseudo_precision": right / (positive & trusted).sum(),
        "pseudo_recall": right / (truth == 1).sum(),
        "pseudo_trusted": trusted.mean(),
    }
    monkeypatch.setattr(matrices, "BLOCK", 1000)
    for before, after in zip(whole, found(), strict=True):
        np.testing.assert_equal(after, before)
    tracemalloc.start()
    try:
        found()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < truth.nbytes


def test_a_small_pool_is_recorded_whole_and_a_large_one_by_a_seeded_sample() -> None:
    spec = RunSpec("cap", "toy", pi=0.1)
    small = observe(TRUTH, spec)
    assert {n: len(r) for n, r in sampled_rows(small, 0).items()} == {
        "labelled": 6,
        "unlabelled": 54,
    }
    large = observe(np.zeros((3 * SAMPLED_ROWS, 1), dtype=np.int8), spec)
    sample = sampled_rows(large, 0)
    assert sum(map(len, sample.values())) == SAMPLED_ROWS
    assert len(sample["labelled"]) == pytest.approx(0.1 * SAMPLED_ROWS, rel=0.15)
    for name, rows in sample.items():
        assert (np.diff(rows) > 0).all()
        assert rows.max() < len(getattr(large, name))
        assert np.array_equal(rows, sampled_rows(large, 0)[name])
        assert not np.array_equal(rows, sampled_rows(large, 1)[name])


def test_an_epoch_that_is_recorded_again_replaces_what_came_after_it() -> None:
    records = Records()
    for epoch in (0, 5, 10):
        records.add("sample_epochs", epoch, {"supervised": np.full(2, epoch, np.float32)})
    records = Records.from_arrays(records.arrays())
    records.add("sample_epochs", 5, {"supervised": np.full(2, 7, np.float32)})
    assert [int(epoch) for epoch in records.sample_epochs] == [0, 5]
    assert [float(row[0]) for row in records.supervised] == [0, 7]


def test_the_manner_of_training_reads_labels_and_trusted_pseudo_labels_only() -> None:
    spec = RunSpec("cap", "toy", pi=0.5)
    judge = Judge.of(spec, TRUTH, TRUTH[:5])
    seen = judge.observation
    positive, trusted = RANDOM.random((30, 4)) < 0.5, RANDOM.random((30, 4)) < 0.5
    judge.grade(1, positive, trusted)
    features = FEATURES[np.concatenate([seen.labelled, seen.unlabelled])]
    judge.record(0, features, np.full((60, 4), 0.5), None)
    labelled = TRUTH[seen.labelled] == 1
    member = np.concatenate([labelled, positive & trusted])
    other = np.concatenate([~labelled, ~positive & trusted])
    expected = angle_statistics(features, member, other)
    assert np.array_equal(judge.judgements.records.trained_on[0], expected, equal_nan=True)
    assert "cosines" not in judge.judgements.records.arrays()


def test_what_does_not_fit_the_sample_is_refused_and_a_trial_notes_nothing() -> None:
    judge = Judge.of(RunSpec("cap", "toy", pi=0.5), TRUTH, TRUTH[:5])
    scores = np.full((60, 4), 0.5)
    for features in (FEATURES[:59], FEATURES[:, 0], None):
        with pytest.raises(RunFailed, match="features of cap"):
            judge.record(0, features, scores, None)
    with pytest.raises(RunFailed, match="scores of cap"):
        judge.record(0, FEATURES, scores[:, :3], None)
    trial = dataclasses.replace(judge.spec, judged_on="held-out")
    judge = Judge.of(trial, TRUTH, None)
    judge.record(0, FEATURES, scores, None)
    assert judge.judgements.records.arrays() == judge.label_counts() == {}
