"""The numbers of analyses, against hand computations, scipy and scikit-learn."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats
from sklearn.metrics import f1_score, recall_score
from statsmodels.stats.power import TTestPower

from ssmlbench.boards.analyses.budget import rows_needed
from ssmlbench.boards.analyses.differences import detectable, metric_difference, seeds_needed
from ssmlbench.boards.analyses.labels import (
    class_accuracies,
    frequency_groups,
    label_f1,
    neighbours,
    two_class_vca,
    vca,
)
from ssmlbench.boards.analyses.pseudo_labels import calibration_error, quality
from ssmlbench.boards.analyses.scores import (
    distances,
    gradient_histograms,
    mean_gradients,
)
from ssmlbench.boards.analyses.theory import TheorySetting, minimised, prior_term, theorem
from ssmlbench.boards.analyses.vdfd import chosen_labels, summary_curve, variance_difference
from ssmlbench.boards.query import Query
from ssmlbench.core.errors import UserError
from tests.support.analysed_runs import LABELS, NAMES, TRUTH, scores_of
from tests.support.board_runs import grid

RANDOM = np.random.default_rng(0)


def test_labels_are_judged_as_by_sklearn() -> None:
    predicted = scores_of(0.5, 0) > 0.5
    positives, negatives = class_accuracies(predicted, TRUTH)
    for k in range(LABELS):
        assert positives[k] == pytest.approx(recall_score(TRUTH[:, k], predicted[:, k]))
        expected = recall_score(~TRUTH[:, k], ~predicted[:, k])
        assert negatives[k] == pytest.approx(expected)
        assert label_f1(predicted, TRUTH)[k] == pytest.approx(
            f1_score(TRUTH[:, k], predicted[:, k])
        )
    assert vca(positives) == pytest.approx(np.var(positives))
    assert two_class_vca(np.array([1.0, 0.5]), np.array([0.0, 0.5])) == pytest.approx(0.125)
    assert vca(np.array([0.8, np.nan, 0.8])) == 0
    assert np.isnan(vca(np.array([0.8, np.nan])))  # one class is equal to no other


def test_groups_are_thirds_by_frequency() -> None:
    assert frequency_groups(np.array([5, 50, 1, 9, 9, 2])) == [
        *("medium", "head", "tail", "head", "medium", "tail"),
    ]


def test_vdfd_is_the_difference_of_the_variances_and_its_summary_the_mean_size() -> None:
    statistics = np.zeros((2, 6, 3))
    statistics[0, 0], statistics[0, 1] = [0.3, 0.1, np.nan], [0.1, 0.4, 0.2]
    assert np.allclose(variance_difference(statistics)[0], [0.2, -0.3, np.nan], equal_nan=True)
    assert summary_curve(statistics).tolist() == pytest.approx([0.25, 0.0])


@pytest.mark.parametrize("labels", [1, 6, 200, 201, 3000])
def test_a_figure_has_a_point_for_each_label_or_for_neighbours_of_many(labels: int) -> None:
    order = np.random.default_rng(0).permutation(labels)
    at, groups = neighbours(order)
    assert len(at) == len(groups) == min(labels, 200)
    assert np.concatenate(groups).tolist() == order.tolist()  # every label in one point
    place = np.argsort(order)
    assert at == [place[group].mean() for group in groups]
    if labels <= 200:
        assert at == list(range(labels))


def test_labels_are_chosen_by_name_or_number_or_from_frequent_to_rare() -> None:
    assert chosen_labels("sand,0", NAMES, np.ones(3)) == [2, 0]
    assert chosen_labels("", NAMES, np.array([1, 9, 5])) == [1, 2, 0]
    with pytest.raises(UserError, match=r"--labels sun_: no such label.*Did you mean"):
        chosen_labels("sun_", NAMES, np.ones(3))


def test_pseudo_labels_and_their_calibration_by_hand() -> None:
    counts = np.array([[[50.0], [20.0], [15.0], [30.0], [40.0]]])
    found = {key: float(value[0, 0]) for key, value in quality(counts, 100).items()}
    assert found == {"precision": 0.75, "recall": 0.5, "coverage": 0.5, "accuracy": 0.8}
    # two bins: 10 scores of mean 0.2 with 4 true, 30 of mean 0.9 with 24 true
    bins = np.array([[10.0, 30.0], [2.0, 27.0], [4.0, 24.0]])
    assert calibration_error(bins) == pytest.approx(10 / 40 * 0.2 + 30 / 40 * 0.1)


def test_the_distance_of_scores_is_the_area_between_their_distribution_functions() -> None:
    scores = RANDOM.random((30, 2))
    truth = np.stack([np.arange(30) % 3 == 0, np.zeros(30, bool)], axis=1)
    found = distances(scores, truth)
    positive, negative = scores[truth[:, 0], 0], scores[~truth[:, 0], 0]
    grid = np.linspace(0, 1, 200_001)
    cdfs = [
        np.searchsorted(np.sort(part), grid, "right") / len(part) for part in (positive, negative)
    ]
    assert found[0] == pytest.approx(np.abs(cdfs[0] - cdfs[1]).mean(), abs=1e-4)
    assert np.isnan(found[1])


def test_mean_gradients_are_exact_where_sums_of_scores_were_recorded() -> None:
    # p of two observed positives .81 and .89, a hidden positive .3, and no negative
    histograms = np.zeros((3, 50))
    histograms[0, [40, 44]] = 1
    histograms[1, 15] = 1
    sums = np.array([0.81 + 0.89, 0.3, 0.0])
    assert mean_gradients(histograms, sums) == pytest.approx([0.15, 0.3, np.nan], nan_ok=True)
    rough = mean_gradients(histograms, None)  # middles of bins: .81, .89 and .31
    assert rough == pytest.approx([0.15, 0.31, np.nan], nan_ok=True)


def test_gradients_of_observed_positives_are_one_less_the_score() -> None:
    histograms = np.zeros((3, 50))
    histograms[:, 49] = 1  # all scores near 1
    magnitudes = gradient_histograms(histograms)
    assert magnitudes[0, 0] == 1
    assert magnitudes[1, 49] == magnitudes[2, 49] == 1


@pytest.mark.parametrize("ratio", [0.4, 0.8, 1.0, 1.3, 2.5])
@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.6])
def test_the_theorem_is_the_minimum_of_the_error_over_b(ratio: float, alpha: float) -> None:
    mu, sigma = 1.0, 0.9

    def error(b: float) -> float:
        above, below = stats.norm.cdf(-(b + mu) / sigma), stats.norm.cdf((b - mu) / (ratio * sigma))
        return float(alpha * above + (1 - alpha) * below)

    b = optimize.minimize_scalar(
        error, bounds=(-1.5, 1.5), method="bounded", options={"xatol": 1e-9}
    ).x
    found = theorem(ratio, mu, sigma, prior_term(alpha, 0, 0))
    assert found.positive == pytest.approx(stats.norm.cdf(-(b + mu) / sigma), abs=1e-5)
    assert found.negative == pytest.approx(stats.norm.cdf((b - mu) / (ratio * sigma)), abs=1e-5)


def test_the_theorem_at_m_1_is_the_limit_and_vca_is_least_there() -> None:
    at, near = theorem(1.0, 1.0, 1.0, 0.3), theorem(1.0001, 1.0, 1.0, 0.3)
    assert at.positive == pytest.approx(near.positive, abs=1e-3)
    assert theorem(1.0, 1.0, 1.0, 0.0).vca == 0
    for ratios in ((1.0, 1.2, 1.6, 2.0), (1.0, 0.9, 0.8, 0.7)):  # Theorem 2.3, C = 0
        values = [theorem(m, 1.0, 1.0, 0.0).vca for m in ratios]
        assert values == sorted(values)
        assert values[0] < values[-1]


def test_where_no_boundary_exists_one_class_is_predicted_and_it_is_said() -> None:
    never = theorem(2.0, 0.05, 1.0, -3.0)
    assert (never.one_class, never.positive, never.negative) == (True, 1.0, 0.0)
    always = theorem(0.5, 0.05, 1.0, 3.0)
    assert (always.one_class, always.positive, always.negative) == (True, 0.0, 1.0)


def test_the_direct_minimisation_finds_the_closed_form_without_noise() -> None:
    setting = TheorySetting(0.4, 0, 0, 1.0, 1.0, 3)
    random = np.random.default_rng(0)
    draws = [minimised(setting, 1.5, 4000, random).positive for _ in range(30)]
    closed = theorem(1.5, 1.0, 1.0, setting.c).positive
    low, high = np.quantile(draws, [0.025, 0.975])
    assert low <= closed <= high


def test_the_printed_constant_of_noise_is_the_papers() -> None:
    # log[0.3 (2 − 0.1 − 0.4) / (0.7 (2 − 0.2 − 0.2))] = log(0.45 / 1.12)
    assert prior_term(0.3, 0.1, 0.2) == pytest.approx(math.log(0.45 / 1.12))


def test_the_seeds_needed_are_those_of_the_power_analysis() -> None:
    power = TTestPower().solve_power  # both tails, of which the far one is below 1e-3 here
    for seeds in (3, 5, 20):
        assert detectable(seeds, 0.02) == pytest.approx(
            0.02 * power(nobs=seeds, alpha=0.05, power=0.8), rel=1e-3
        )
    for difference_, deviation in ((0.01, 0.01), (0.02, 0.05), (0.0323, 0.0254), (0.08, 0.025)):
        exact = power(difference_ / deviation, power=0.8, alpha=0.05)
        assert seeds_needed(difference_, deviation) == math.ceil(exact)
        assert seeds_needed(-difference_, deviation) == math.ceil(exact)
    assert seeds_needed(0.5, 0.0) == 2
    assert seeds_needed(0.0, 0.01) is None
    assert seeds_needed(0.0, 0.0) is None
    assert seeds_needed(1e-6, 1.0) is None


@pytest.mark.parametrize(
    ("by_seed", "rows", "sure"),
    [
        ((-0.05, -0.04, -0.005), (-0.05, -0.01), False),  # other seeds: [-0.092, +0.028]
        ((-0.03, -0.032, -0.034), (-0.05, -0.01), True),
        ((-0.03, -0.032, -0.034), (-0.05, +0.01), False),
        ((0.03, 0.032, 0.034), (0.01, 0.05), True),
        ((0.03, 0.03), (0.01, 0.05), False),  # two seeds have no interval
    ],
)
def test_a_method_is_better_only_over_seeds_and_over_test_rows(
    by_seed: tuple[float, ...], rows: tuple[float, float], sure: bool, tmp_path: Path
) -> None:
    a = grid(tmp_path, {"cap": [0.5 + value for value in by_seed]})
    b = grid(tmp_path, {"bce": [0.5] * len(by_seed)})
    for key, sign in (("map", 1), ("hamming", -1)):
        interval = rows if sign > 0 else (-rows[1], -rows[0])
        one = metric_difference(key, a, b, Query(), interval)
        assert one.is_sure is sure
        assert one.first_ahead is (by_seed[0] > 0)
    if len(by_seed) > 2:
        expected = stats.ttest_1samp(by_seed, 0).confidence_interval(0.95)
        assert (one.low_over_seeds, one.high_over_seeds) == pytest.approx(
            (-expected.high, -expected.low)
        )


def test_the_rows_a_curve_needs_are_read_between_its_points() -> None:
    rows, curve = [10, 100, 1000], [0.2, 0.4, 0.6]
    assert rows_needed(rows, curve, 0.3) == pytest.approx(10**1.5)
    assert rows_needed(rows, curve, 0.6) == 1000  # a measured point, to the bit
    assert rows_needed(rows, curve, 0.2) == 10
    assert np.isnan(rows_needed(rows, curve, 0.1))  # its first point is better already
    assert np.isnan(rows_needed(rows, curve, 0.61))
