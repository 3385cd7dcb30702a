"""The metrics agree with scikit-learn, the reference vectors and small cases worked by hand."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import average_precision_score, f1_score, hamming_loss

from ssmlbench.protocol.decisions import calibrated_thresholds, decide
from ssmlbench.protocol.metrics import (
    CONVENTIONS,
    METRICS,
    Predictions,
    average_precision,
    empty_labels,
    evaluate,
)

VECTOR = json.loads((Path(__file__).parents[1] / "vectors.json").read_text())["metrics.oracle_topk"]
SCORES = np.array(VECTOR["inputs"]["scores"])
TRUTH = np.array(VECTOR["inputs"]["targets"])
EXPECTED = VECTOR["expected"]
PRINTED = 1e-6  # the vectors are printed to six digits


def draw(
    seed: int, dtype: type = np.float64, levels: int = 0, density: float = 0.2, k: int = 9
) -> tuple[NDArray, NDArray]:
    """Random scores and truth; `levels` > 0 leaves only that many distinct scores (many ties)."""
    rng = np.random.default_rng(seed)
    scores = rng.random((150, k))
    if levels:
        scores = np.floor(scores * levels) / levels
    return scores.astype(dtype), rng.random((150, k)) < density


INPUTS = pytest.mark.parametrize(
    "kind",
    [
        {},
        {"dtype": np.float32},
        {"dtype": np.float16},
        {"levels": 4},
        {"levels": 1},
        {"dtype": np.float32, "levels": 7},
        {"density": 0.01, "k": 40},
        {"density": 0.01, "k": 40, "levels": 3, "dtype": np.float32},
        {"density": 0.95},
    ],
    ids=str,
)


def one_loss(scores: ArrayLike, truth: ArrayLike, convention: str = "default") -> float:
    return float(METRICS["one_loss"].value(Predictions(scores, truth), convention)[0])


# the reference vectors


def test_top_k_metrics_match_the_released_evaluation() -> None:
    predicted = decide(SCORES, "top-k", truth=TRUTH)
    result = evaluate(SCORES, TRUTH, predicted, convention="released")
    assert predicted.tolist() == np.array(EXPECTED["predicted_with_true_k"], bool).tolist()
    keys = {"one_loss": "one_error", "map": "map_fraction"}
    for key in METRICS:
        assert result[key] == pytest.approx(EXPECTED[keys.get(key, key)], abs=PRINTED)
    assert average_precision(SCORES, TRUTH) == pytest.approx(EXPECTED["ap"], abs=PRINTED)


def test_threshold_metrics_match_the_released_evaluation() -> None:
    result = evaluate(SCORES, TRUTH, decide(SCORES, "threshold"), convention="released")
    for key, value in EXPECTED["at_threshold_0_5"].items():
        assert result[key] == pytest.approx(value, abs=PRINTED)


# scikit-learn


@INPUTS
@pytest.mark.parametrize("seed", range(3))
def test_average_precision_is_scikit_learns(kind: dict, seed: int) -> None:
    scores, truth = draw(seed, **kind)
    for label, value in enumerate(average_precision(scores, truth)):
        if truth[:, label].any():
            expected = average_precision_score(truth[:, label], scores[:, label])
            assert value == pytest.approx(expected, abs=1e-9)
        else:
            assert np.isnan(value)


@INPUTS
@pytest.mark.parametrize("decision", ["threshold", "top-k"])
def test_f1_and_hamming_are_scikit_learns(kind: dict, decision: str) -> None:
    scores, truth = draw(7, **kind)
    predicted = decide(scores, decision, truth=truth)
    result = evaluate(scores, truth, predicted, convention="released")
    with_positive = truth.any(axis=0)
    kept = evaluate(scores, truth, predicted)
    per_label = f1_score(truth, predicted, average=None, zero_division=0)
    micro = f1_score(truth, predicted, average="micro", zero_division=0)
    assert result["micro_f1"] == pytest.approx(micro, abs=1e-9)
    assert result["macro_f1"] == pytest.approx(per_label.mean(), abs=1e-9)
    assert result["hamming"] == pytest.approx(hamming_loss(truth, predicted), abs=1e-9)
    assert kept["macro_f1"] == pytest.approx(per_label[with_positive].mean(), abs=1e-9)


# decisions


@INPUTS
def test_top_k_is_a_stable_sort_of_each_row(kind: dict) -> None:
    scores, truth = draw(11, **kind)
    expected = np.zeros_like(truth)
    for row, k in enumerate(truth.sum(axis=1)):
        expected[row, np.argsort(-scores[row], kind="stable")[:k]] = True
    assert (decide(scores, "top-k", truth=truth) == expected).all()


def test_top_k_gives_ties_to_the_lower_label_and_nothing_to_a_row_without_labels() -> None:
    scores = [[0.4, 0.9, 0.4, 0.4], [0.5, 0.5, 0.5, 0.5], [0.1, 0.2, 0.3, 0.4]]
    truth = [[0, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]]
    chosen = decide(scores, "top-k", truth=truth)
    assert chosen.tolist() == [[True, True, False, False], [False] * 4, [True] * 4]


def test_a_score_of_exactly_one_half_is_below_the_threshold() -> None:
    above = np.nextafter(np.float32(0.5), np.float32(1))
    scores = np.array([[0.5, above]], dtype=np.float32)
    assert decide(scores, "threshold").tolist() == [[False, True]]


def test_calibrated_thresholds_take_the_score_at_the_rank_of_the_prior() -> None:
    column = [0.1, 0.9, 0.5, 0.3]  # descending: 0.9, 0.5, 0.3, 0.1
    scores = np.array([column] * 5).T
    # ranks round(prior * 4): 0, 1, 2, 4; and round(0.4) = 0
    thresholds = calibrated_thresholds(scores, [0.0, 0.25, 0.5, 1.0, 0.1])
    assert thresholds.tolist() == [np.inf, 0.9, 0.5, 0.1, np.inf]
    predicted = decide(scores, "calibrated", parameters={"thresholds": thresholds})
    assert predicted.sum(axis=0).tolist() == [0, 1, 2, 4, 0]


def test_rows_tied_at_a_calibrated_threshold_are_all_predicted() -> None:
    scores = np.array([[0.7], [0.7], [0.7], [0.2]])
    thresholds = calibrated_thresholds(scores, [0.25])
    assert decide(scores, "calibrated", parameters={"thresholds": thresholds}).sum() == 3


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_calibrated_rates_match_the_prior_without_ties(dtype: type) -> None:
    rng = np.random.default_rng(3)
    scores = np.stack([rng.permutation(200) for _ in range(4)], axis=1).astype(dtype) / dtype(256)
    prior = np.array([0.01, 0.125, 0.5, 0.99])
    thresholds = calibrated_thresholds(scores, prior)
    predicted = decide(scores, "calibrated", parameters={"thresholds": thresholds})
    assert thresholds.dtype == dtype
    assert predicted.mean(axis=0) == pytest.approx(prior)


# one loss


def test_one_loss_ties() -> None:
    scores = [[0.9, 0.9, 0.1], [0.5, 0.5, 0.5], [0.1, 0.8, 0.2], [0.6, 0.6, 0.1]]
    truth = [[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1]]
    # expected error of a random choice among the tied: 1/2, 1/3, 0, 1; lenient: 0, 0, 0, 1
    assert one_loss(scores, truth) == pytest.approx((1 / 2 + 1 / 3 + 0 + 1) / 4)
    assert one_loss(scores, truth, "released") == pytest.approx(1 / 4)


def test_a_row_with_no_true_label_is_wrong_either_way() -> None:
    for convention in CONVENTIONS:
        assert one_loss([[0.9, 0.1], [0.9, 0.1]], [[0, 0], [1, 0]], convention) == 0.5


def test_float32_neighbours_are_not_tied() -> None:
    low = np.float32(0.3)
    scores = np.array([[low, np.nextafter(low, np.float32(1))]])
    assert one_loss(scores, [[1, 0]]) == 1.0
    assert one_loss(scores.astype(np.float64), [[1, 0]]) == 1.0


def test_signed_zeros_are_tied() -> None:
    assert one_loss([[0.0, -0.0]], [[1, 0]]) == 0.5
    assert average_precision([[0.0], [-0.0]], [[1], [0]]).tolist() == [0.5]


# conventions


def test_labels_without_a_positive_are_left_out_or_count_zero() -> None:
    # label 0 is ranked perfectly and predicted rightly; label 1 has no positive
    scores, truth = [[0.9, 0.8], [0.1, 0.2]], [[1, 0], [0, 0]]
    predicted = [[1, 1], [0, 0]]
    kept = evaluate(scores, truth, predicted)
    released = evaluate(scores, truth, predicted, convention="released")
    assert (kept["map"], kept["macro_f1"]) == (1.0, 1.0)
    assert (released["map"], released["macro_f1"]) == (0.5, 0.5)
    # the others do not depend on the convention: TP 1, FP 1, FN 0 over four entries
    for result in (kept, released):
        assert result["micro_f1"] == pytest.approx(2 / 3)
        assert result["hamming"] == 0.25
    assert empty_labels(truth) == 1


def test_the_conventions_differ_on_one_loss_ties() -> None:
    scores, truth = [[0.5, 0.5]], [[1, 0]]
    assert evaluate(scores, truth, truth)["one_loss"] == 0.5
    assert evaluate(scores, truth, truth, convention="released")["one_loss"] == 0.0


def test_all_labels_empty() -> None:
    scores, none = [[0.9, 0.2], [0.3, 0.4]], np.zeros((2, 2), dtype=int)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = evaluate(scores, none, none)
        released = evaluate(scores, none, none, convention="released")
    assert np.isnan(kept["map"])
    assert np.isnan(kept["macro_f1"])
    assert released["map"] == released["macro_f1"] == 0.0
    assert kept["micro_f1"] == released["micro_f1"] == 0.0
    assert kept["hamming"] == 0.0
    assert kept["one_loss"] == 1.0
    assert empty_labels(none) == 2


# laws


# row weights, and the tables


# what is refused
