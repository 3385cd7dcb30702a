"""The metrics agree with scikit-learn, the reference vectors and small cases worked by hand."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import average_precision_score, f1_score, hamming_loss

from ssmlbench.protocol.decisions import RULES, calibrated_thresholds, decide, fit_rules
from ssmlbench.protocol.matrices import count
from ssmlbench.protocol.metrics import (
    CONVENTIONS,
    METRICS,
    Metric,
    Predictions,
    average_precision,
    empty_labels,
    evaluate,
    evaluate_rules,
    reaching,
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


@st.composite
def tied_data(draw: st.DrawFn) -> tuple[NDArray, NDArray]:
    n, k = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    cells = st.lists(st.integers(-3, 3), min_size=n * k, max_size=n * k)
    flags = st.lists(st.booleans(), min_size=n * k, max_size=n * k)
    return np.array(draw(cells)).reshape(n, k) / 3, np.array(draw(flags)).reshape(n, k)


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


@given(tied_data())
@settings(deadline=None)
def test_under_top_k_hamming_follows_from_micro_f1(data: tuple[NDArray, NDArray]) -> None:
    scores, truth = data
    result = evaluate(scores, truth, decide(scores, "top-k", truth=truth))
    expected = 2 * (1 - result["micro_f1"]) * truth.mean()
    assert result["hamming"] == pytest.approx(expected, abs=1e-9)


@given(tied_data(), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_rows_does_not_matter(data: tuple[NDArray, NDArray], random) -> None:  # type: ignore[no-untyped-def]
    scores, truth = data
    order = random.sample(range(len(scores)), len(scores))
    for decision in ("threshold", "top-k"):
        for convention in ("default", "released"):
            before, after = (
                evaluate(s, t, decide(s, decision, truth=t), convention=convention)
                for s, t in ((scores, truth), (scores[order], truth[order]))
            )
            assert after == pytest.approx(before, abs=1e-9, nan_ok=True)


@given(tied_data())
@settings(deadline=None)
def test_map_depends_only_on_each_labels_ranking(data: tuple[NDArray, NDArray]) -> None:
    scores, truth = data
    slope = np.arange(1, scores.shape[1] + 1)
    ranks = np.unique(scores, return_inverse=True)[1].reshape(scores.shape)
    ranked = average_precision(ranks, truth)
    for mapped in (scores**3 * slope - slope, np.exp(scores) / slope, scores.astype(np.float32)):
        assert average_precision(mapped, truth) == pytest.approx(ranked, abs=1e-9, nan_ok=True)


@given(tied_data())
@settings(deadline=None)
def test_neutral_one_loss_is_never_below_lenient(data: tuple[NDArray, NDArray]) -> None:
    assert 0 <= one_loss(*data, "released") <= one_loss(*data) + 1e-12 <= 1 + 1e-12


# row weights, and the tables


@given(tied_data(), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_a_row_that_counts_twice_is_two_rows(data: tuple[NDArray, NDArray], random) -> None:  # type: ignore[no-untyped-def]
    scores, truth = data
    predicted = decide(scores, "top-k", truth=truth)
    rows = len(scores)
    draws = [[random.randrange(rows) for _ in range(rows)] for _ in range(3)]
    weights = np.array([np.bincount(draw, minlength=rows) for draw in draws], dtype=np.float64)
    weighted = Predictions(scores, truth, predicted, weights)
    for convention in CONVENTIONS:
        for key, metric in METRICS.items():
            expected = [
                evaluate(scores[d], truth[d], predicted[d], convention=convention)[key]
                for d in draws
            ]
            values = metric.value(weighted, convention)
            assert values == pytest.approx(expected, abs=1e-12, nan_ok=True), key


def test_metrics_of_all_rules_are_those_of_each() -> None:
    scores, truth = draw(3)
    parameters = fit_rules(scores, truth.mean(axis=0))
    found = evaluate_rules(scores, truth, parameters)
    assert list(found) == list(RULES)
    for rule, by_convention in found.items():
        predicted = decide(scores, rule, truth=truth, parameters=parameters)
        for convention in CONVENTIONS:
            expected = evaluate(scores, truth, predicted, convention=convention)
            assert by_convention[convention] == expected
    assert "calibrated" not in evaluate_rules(scores, truth, {})


def test_a_metric_without_a_rule_cannot_read_label_sets() -> None:
    greedy = Metric("size", "Size", True, False, lambda p, c: p.claimed.sum(axis=1))
    with pytest.raises(ValueError, match="must have uses_decision=True"):
        greedy.value(Predictions(SCORES, TRUTH), "default")


def test_two_rules_cannot_fit_the_same_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = dataclasses.replace(RULES["calibrated"], name="twin")
    monkeypatch.setitem(RULES, "twin", twin)
    with pytest.raises(ValueError, match="'twin' must fit thresholds under names that no other"):
        fit_rules(SCORES, np.full(SCORES.shape[1], 0.2))


# what is refused


@pytest.mark.parametrize(
    ("scores", "truth", "message"),
    [
        (np.empty((0, 3)), np.empty((0, 3)), "non-empty"),
        (np.empty((3, 0)), np.empty((3, 0)), "non-empty"),
        (np.zeros(3), np.zeros(3), "rows × labels"),
        ([[0.1, np.nan]], [[0, 1]], "NaN"),
        ([["a", "b"]], [[0, 1]], "real numbers"),
        ([[0.1, 0.2]], [[0, 1, 1]], "shape"),
        ([[0.1, 0.2]], [[0, -1]], "only 0 and 1"),
    ],
)
def test_bad_input_is_refused(scores: NDArray, truth: NDArray, message: str) -> None:
    for function in (average_precision, one_loss):
        with pytest.raises(ValueError, match=message):
            function(scores, truth)
    with pytest.raises(ValueError, match=message):
        decide(scores, "top-k", truth=truth)
    with pytest.raises(ValueError, match=message):
        evaluate(scores, truth, truth)


def test_wrong_options_name_the_choices() -> None:
    scores, truth = [[0.1, 0.2]], [[0, 1]]
    for decision in RULES:
        with pytest.raises(ValueError, match=decision):
            decide(scores, "topk")
    with pytest.raises(ValueError, match="released"):
        evaluate(scores, truth, truth, convention="papers")
    with pytest.raises(ValueError, match="truth="):
        decide(scores, "top-k")
    with pytest.raises(ValueError, match="needs parameters: thresholds"):
        decide(scores, "calibrated")
    with pytest.raises(ValueError, match="one per label"):
        decide(scores, "calibrated", parameters={"thresholds": np.array([0.5])})
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        calibrated_thresholds(scores, [0.5, 1.5])
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        calibrated_thresholds(scores, [0.5, np.nan])
    with pytest.raises(ValueError, match="predicted has shape"):
        evaluate(scores, truth, [[1, 0, 0]])


def test_inputs_are_left_as_they_were() -> None:
    scores, truth = draw(5)
    before = scores.copy(), truth.copy()
    evaluate(scores, truth, decide(scores, "top-k", truth=truth))
    calibrated_thresholds(scores, truth.mean(axis=0))
    assert (scores == before[0]).all()
    assert (truth == before[1]).all()


def test_evaluate_reports_the_listed_metrics_in_order() -> None:
    assert list(evaluate(SCORES, TRUTH, TRUTH)) == list(METRICS)
    assert [m.title for m in METRICS.values() if not m.higher_is_better] == [
        "Hamming loss",
        "One loss",
    ]


def test_torch_is_not_imported() -> None:
    code = "import sys, ssmlbench.protocol.metrics; sys.exit('torch' in sys.modules)"
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root).returncode == 0


def test_large_label_spaces_are_measured_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits as in one piece, and memory for masks beside the scores: no copy in double."""
    import tracemalloc

    from ssmlbench.protocol import matrices, metrics

    random = np.random.default_rng(0)
    scores = random.random((1200, 900), dtype=np.float32).round(2)  # with ties
    truth = random.random(scores.shape) < 0.02
    weights = random.poisson(1, (3, len(scores))).astype(np.float64)

    def measured() -> tuple[object, list[bytes], dict[str, bytes]]:
        parameters = fit_rules(scores, truth.mean(axis=0))
        values = metrics.evaluate_rules(scores, truth, parameters)
        drawn = metrics.Predictions(scores, truth, scores > 0.5, weights)
        resampled = [m.value(drawn, "default").tobytes() for m in metrics.METRICS.values()]
        return values, resampled, {name: v.tobytes() for name, v in parameters.items()}

    monkeypatch.setattr(matrices, "BLOCK", scores.size)
    together = measured()
    monkeypatch.setattr(matrices, "BLOCK", scores.size // 20)
    tracemalloc.start()
    in_blocks = measured()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert in_blocks == together
    assert peak < 1.6 * scores.nbytes  # a copy in double would be 2


COLUMNS = {
    "uniform": lambda draw: draw.random(9000),
    "nearly all 0": lambda draw: draw.random(9000) ** 40,
    "few values": lambda draw: draw.integers(0, 5, 9000) / 4,
    "two values": lambda draw: draw.integers(0, 2, 9000) * 1e-30,
    "far apart": lambda draw: draw.normal(size=9000) * 1e300 ** draw.random(9000),
    "close together": lambda draw: 1 + draw.random(9000) * 1e-15,
    "not finite": lambda draw: np.where(draw.random(9000) < 0.1, np.inf, draw.normal(size=9000)),
    "negative infinity": lambda draw: np.where(draw.random(9000) < 0.1, -np.inf, draw.random(9000)),
}


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int64])
@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("share", [0.0005, 0.05, 1.0])
def test_what_reaches_a_level_is_counted_exactly(name: str, kind: type, share: float) -> None:
    draw = np.random.default_rng(0)
    values = COLUMNS[name](draw)
    if kind is np.int64:
        values = np.nan_to_num(values, posinf=9, neginf=-9).clip(-(2**40), 2**40)
    with np.errstate(over="ignore"):
        column = values.astype(kind)
    levels = np.unique(column[draw.random(len(column)) < share])
    expected = [(column >= level).sum() for level in levels[:50]]
    assert reaching(column, levels)[:50].tolist() == expected
    assert reaching(column, levels[-1:]).tolist() == [(column >= levels[-1]).sum()]


@pytest.mark.parametrize(
    "shape", [(1, 1), (254, 3), (255, 3), (256, 3), (1000, 7), (5, 255), (5, 256), (3, 700)]
)
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_counts_are_right_beyond_what_a_byte_holds(shape: tuple[int, int], density: float) -> None:
    mask = np.random.default_rng(0).random(shape) < density
    for matrix in (mask, np.asfortranarray(mask), mask[::2], mask[:, ::2]):
        for axis in (0, 1):
            assert count(matrix, axis).dtype == np.int64
            np.testing.assert_array_equal(count(matrix, axis), matrix.sum(axis=axis))
    assert count(mask[:, 0], 0) == mask[:, 0].sum()
