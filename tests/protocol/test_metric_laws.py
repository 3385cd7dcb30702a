"""Laws of the metrics on random inputs, row weights, and inputs that are refused."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ssmlbench.protocol.decisions import RULES, calibrated_thresholds, decide, fit_rules
from ssmlbench.protocol.matrices import count
from ssmlbench.protocol.metrics import (
    CONVENTIONS,
    METRICS,
    Metric,
    Predictions,
    average_precision,
    evaluate,
    evaluate_rules,
    reaching,
)
from tests.protocol.test_metrics import SCORES, TRUTH, draw, one_loss


@st.composite
def tied_data(draw: st.DrawFn) -> tuple[NDArray, NDArray]:
    n, k = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    cells = st.lists(st.integers(-3, 3), min_size=n * k, max_size=n * k)
    flags = st.lists(st.booleans(), min_size=n * k, max_size=n * k)
    return np.array(draw(cells)).reshape(n, k) / 3, np.array(draw(flags)).reshape(n, k)


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
    "zeros of both signs": lambda draw: draw.choice([-0.0, 0.0, 1.0], 9000) * draw.random(9000),
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
