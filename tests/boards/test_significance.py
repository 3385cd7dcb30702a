"""Statistics agree with hand-worked and published examples, and refuse where they can say nothing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssmlbench.boards import significance
from ssmlbench.boards.bootstrap import bootstrap
from ssmlbench.boards.build import build_boards
from ssmlbench.boards.query import Query
from ssmlbench.boards.render import TEXT_FORMATS, as_markdown
from ssmlbench.boards.render.statistics import statistics_document
from ssmlbench.boards.significance import TooFew
from ssmlbench.protocol.decisions import RULES, decide
from ssmlbench.protocol.metrics import METRICS, Predictions, evaluate
from ssmlbench.runs.scores import StoredScores
from tests.support.board_runs import BASE, finished, grid

# Demšar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7 (2006), Table 6:
# AUC of C4.5, C4.5+m, C4.5+cf and C4.5+m+cf on 14 data sets. The printed ranks tell the last two
# apart on `voting`, both printed 0.975: without the 0.9751 here the average ranks are not the paper's.
DEMSAR = np.array(
    [
        [0.763, 0.768, 0.771, 0.798], [0.599, 0.591, 0.590, 0.569], [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657], [0.882, 0.888, 0.886, 0.898], [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685], [0.583, 0.583, 0.563, 0.625], [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000], [0.940, 0.962, 0.965, 0.962], [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.9751, 0.975], [0.957, 0.978, 0.946, 0.970],
    ]
)  # fmt: skip

# Hollander and Wolfe (1973), p. 140 ff., as in R's help of friedman.test: seconds of 22 players
# rounding first base in three ways.
ROUNDING_TIMES = np.array(
    [
        [5.40, 5.50, 5.55], [5.85, 5.70, 5.75], [5.20, 5.60, 5.50], [5.55, 5.50, 5.40],
        [5.90, 5.85, 5.70], [5.45, 5.55, 5.60], [5.40, 5.40, 5.35], [5.45, 5.50, 5.35],
        [5.25, 5.15, 5.00], [5.85, 5.80, 5.70], [5.25, 5.20, 5.10], [5.65, 5.55, 5.45],
        [5.60, 5.35, 5.45], [5.05, 5.00, 4.95], [5.50, 5.50, 5.40], [5.45, 5.55, 5.50],
        [5.55, 5.55, 5.35], [5.45, 5.50, 5.55], [5.50, 5.45, 5.25], [5.65, 5.60, 5.40],
        [5.70, 5.65, 5.55], [6.30, 6.30, 6.25],
    ]
)  # fmt: skip


def test_friedman_gives_the_published_value_of_rounding_times() -> None:
    found = significance.friedman(ROUNDING_TIMES, higher_is_better=False)
    assert found.statistic == pytest.approx(11.143, abs=5e-4)  # R: 11.1429, df = 2
    assert found.p == pytest.approx(0.003805, abs=5e-7)


def test_ranks_and_critical_difference_are_those_of_demsars_example() -> None:
    found = significance.friedman(DEMSAR)
    assert found.average_ranks == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)
    # Section 3.2.2's formula, which knows no ties: 12·14/(4·5) · (Σ R² − 4·5²/4) = 9.28
    plain = 12 * 14 / 20 * ((found.average_ranks**2).sum() - 25)
    assert plain == pytest.approx(9.28, abs=5e-3)
    # scipy's correction divides by 1 − Σ(t³ − t) / (N k (k² − 1)); three pairs and one four tie
    ties = 1 - (3 * (2**3 - 2) + (4**3 - 4)) / (14 * 4 * (4**2 - 1))
    assert found.statistic == pytest.approx(plain / ties)
    # Iman and Davenport on the uncorrected value: 13·9.28 / (14·3 − 9.28) = 3.69
    assert 13 * plain / (42 - plain) == pytest.approx(3.69, abs=5e-3)
    assert found.f == pytest.approx(13 * found.statistic / (42 - found.statistic))
    # Section 3.2.2: q = 2.569 at 0.05 for four, CD = 2.569 √(4·5 / (6·14)) = 1.25
    assert significance.nemenyi_difference(4, 14) == pytest.approx(
        2.569 * (20 / 84) ** 0.5, abs=5e-4
    )
    # and 2.291 at 0.10: CD = 1.12
    assert significance.nemenyi_difference(4, 14, 0.1) == pytest.approx(1.12, abs=5e-3)


def test_nemenyi_tells_apart_what_demsar_tells_apart() -> None:
    found = significance.nemenyi(DEMSAR, alpha=0.10)
    # The paper, at 0.10: C4.5+m and C4.5+m+cf are better than C4.5 (differences 1.143, 1.179 > 1.12);
    # the others are not distinguished (best: 2.893 - 1.964 = 0.929).
    assert found.critical_difference == pytest.approx(1.12, abs=5e-3)
    assert found.cliques == [(3, 1, 2), (2, 0)]
    together = {pair for group in found.cliques for pair in _pairs(group)}
    apart = {(i, j) for i in range(4) for j in range(i) if found.p[i, j] < 0.10}
    assert apart == {(1, 0), (3, 0)}
    assert not together & apart


def _pairs(group: tuple[int, ...]) -> set[tuple[int, int]]:
    return {(max(i, j), min(i, j)) for i in group for j in group if i != j}


def test_cliques_are_the_longest_runs_within_the_difference() -> None:
    ranks = np.array([1.0, 3.0, 2.0, 5.0])
    assert significance.cliques(ranks, 1.0) == [(0, 2), (2, 1)]
    assert significance.cliques(ranks, 2.0) == [(0, 2, 1), (1, 3)]
    assert significance.cliques(ranks, 0.5) == []


def test_wilcoxon_is_scipys_and_holm_steps_down() -> None:
    rising = np.arange(1.0, 8.0)  # 7 blocks
    # a beats b in all, b and c: differences +1 −2 +3 … mixed; a beats c in all
    b = rising * 0
    c = rising * np.array([1, -1, 1, -1, 1, -1, 1]) / 10
    values = np.stack([rising, b, c], axis=1)
    found = {(pair.first, pair.second): pair for pair in significance.wilcoxon_holm(values, "abc")}
    # n = 7, all differences of one sign: p = 2 / 2⁷
    assert found["a", "b"].p == pytest.approx(2 / 128)
    assert found["a", "c"].p == pytest.approx(2 / 128)
    # b − c is −0.1 +0.2 −0.3 +0.4 −0.5 +0.6 −0.7: W⁺ = 2 + 4 + 6 = 12 of 28.
    # Subsets of {1 … 7} with sum ≤ 12, counted by sum 0 … 12: 1 1 1 2 2 3 4 5 5 6 7 7 8 = 52.
    assert found["b", "c"].p == pytest.approx(2 * 52 / 128)
    # Holm: the smallest ×3, the next ×2 but not below the one before, the last ×1
    assert found["a", "b"].holm == pytest.approx(3 * 2 / 128)
    assert found["a", "c"].holm == pytest.approx(3 * 2 / 128)
    assert found["b", "c"].holm == pytest.approx(2 * 52 / 128)
    assert found["a", "b"].difference == 4.0


def test_equal_methods_do_not_differ() -> None:
    same = np.repeat(np.arange(8.0)[:, None], 3, axis=1)
    assert significance.friedman(same).p == 1.0
    assert all(pair.holm == 1.0 for pair in significance.wilcoxon_holm(same, "abc"))


def test_tests_refuse_with_the_reason_when_there_is_too_little() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(TooFew, match="at least 3 methods measured in every block, here are 2"):
        significance.friedman(rng.random((20, 2)))
    with pytest.raises(TooFew, match="at least 5 blocks, here are 4"):
        significance.nemenyi(rng.random((4, 5)))
    # 2 / 2⁵ = 0.0625 is the least there can be
    with pytest.raises(TooFew, match=r"on 5 blocks its p cannot be below 0\.0625"):
        significance.wilcoxon_holm(rng.random((5, 3)), "abc")


# ------------------------------------------------------------------------- from boards to blocks


def test_blocks_are_cells_of_one_regime_with_complete_methods(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"bce": [0.5, 0.7], "cap": [0.8, 0.9], "new": [0.9, 0.9]})
    runs += grid(tmp_path, {"bce": [0.6], "cap": [0.5]}, pi=0.2)
    runs += grid(tmp_path, {"bce": [0.4], "cap": [0.1]}, dataset="other")
    runs += grid(tmp_path, {"bce": [0.4]}, dataset="lonely")
    runs += grid(tmp_path, {"bce": [0.9]}, regime="full", pi=None)
    boards = build_boards(runs, Query())
    full, semi = sorted(
        significance.blocks_over_cells(boards, METRICS["map"]), key=lambda blocks: blocks.regime
    )
    assert (full.regime, full.blocks, full.skipped) == ("full", (), ("toy",))
    assert semi.blocks == ("other 0.1", "toy 0.1", "toy 0.2")
    assert semi.names == ("bce", "cap")
    assert semi.left_out == ("new",)
    assert semi.skipped == ("lonely 0.1",)
    assert semi.values == pytest.approx(np.array([[0.4, 0.1], [0.6, 0.85], [0.6, 0.5]]))


def test_seeds_can_be_blocks_and_say_so(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"bce": [0.5, 0.7, 0.6], "cap": [0.8, 0.9]})
    (blocks,) = significance.blocks_over_seeds(build_boards(runs, Query()), METRICS["map"])
    assert blocks.blocks == ("toy 0.1 seed 0", "toy 0.1 seed 1")
    assert blocks.skipped == ("toy 0.1 seed 2",)
    assert blocks.values == pytest.approx(np.array([[0.5, 0.8], [0.7, 0.9]]))
    assert "not over data sets" in blocks.about


def test_runs_made_otherwise_are_no_block(tmp_path: Path) -> None:
    runs = grid(tmp_path, {"bce": [0.5, 0.7], "cap": [0.8, 0.9]})
    runs += [finished(tmp_path, dataclasses.replace(BASE, epochs=5), 0.1)]
    (blocks,) = significance.blocks_over_cells(build_boards(runs, Query()), METRICS["map"])
    assert blocks.values == pytest.approx(np.array([[0.6, 0.85]]))


# -------------------------------------------------------------------------------------- bootstrap


def scored(rng: np.random.Generator, rows: int = 40, labels: int = 6) -> StoredScores:
    scores = rng.integers(0, 8, (rows, labels)) / 8  # coarse: many ties
    truth = rng.random((rows, labels)) < 0.3
    truth[:, -1] = False  # a label without a test positive
    return StoredScores(scores.astype(np.float32), truth, {"thresholds": np.full(labels, 0.4)})


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    decision=st.sampled_from(list(RULES)),
    convention=st.sampled_from(["default", "released"]),
)
def test_a_draw_counts_like_the_metrics_of_the_drawn_rows(
    seed: int, decision: str, convention: str
) -> None:
    rng = np.random.default_rng(seed)
    run = scored(rng)
    drawn = rng.integers(0, 40, 40)
    weights = np.bincount(drawn, minlength=40).astype(np.float64)[None]
    predicted = decide(run.scores, decision, truth=run.truth, parameters=run.parameters)
    part = run.scores[drawn], run.truth[drawn], predicted[drawn]
    expected = evaluate(*part, convention=convention)
    predictions = Predictions(run.scores, run.truth, predicted, weights)
    for key, metric in METRICS.items():
        (value,) = metric.value(predictions, convention)
        assert value == pytest.approx(expected[key], abs=1e-12), key


def test_the_interval_is_that_of_a_mean_where_it_is_known() -> None:
    # One label; 1 of 4 of 400 rows is wrong at the top: the mean of 400 coin flips with p = 1/4 has
    # a standard error of √(0.25 · 0.75 / 400) = 0.02165 and so a 95 % interval of 0.25 ± 0.0424.
    truth = np.arange(400)[:, None] % 4 != 0
    run = StoredScores(np.ones((400, 1)), truth)
    low, high = bootstrap([run], ["one_loss"], draws=2000, seed=1)["one_loss"]
    assert (low, high) == pytest.approx((0.25 - 0.0424, 0.25 + 0.0424), abs=0.004)


def test_the_interval_is_repeatable_and_that_of_the_seeds_mean() -> None:
    first, second = (scored(np.random.default_rng(seed), rows=200) for seed in (1, 2))
    second = dataclasses.replace(second, truth=first.truth)
    options: dict[str, Any] = {"metrics": ["map"], "draws": 200, "seed": 3}
    assert bootstrap([first, second], **options) == bootstrap([first, second], **options)
    assert bootstrap([first, first], **options)["map"] == pytest.approx(
        bootstrap([first], **options)["map"]
    )
    low, high = bootstrap([first, second], **options)["map"]
    means = [_value(run, "map") for run in (first, second)]
    assert low < np.mean(means) < high


def _value(run: StoredScores, metric: str) -> float:
    return evaluate(run.scores, run.truth, run.truth)[metric]


def test_runs_on_different_test_sets_are_not_averaged() -> None:
    first, second = (scored(np.random.default_rng(seed)) for seed in (1, 2))
    with pytest.raises(ValueError, match="different test sets"):
        bootstrap([first, second], ["map"])


# ------------------------------------------------------------------------------------- as a page


def page_over_six_cells(root: Path) -> Any:
    """cap beats bbam beats bce in each of six cells; `late` is missing in one."""
    runs = []
    for number, pi in enumerate((0.05, 0.1, 0.2)):
        for dataset in ("one", "two"):
            base = 0.3 + number / 10 + (0.05 if dataset == "two" else 0)
            values = {"cap": [base + 0.04 + number / 100], "bbam": [base + 0.02], "bce": [base]}
            if pi < 0.2:
                values["late"] = [0.9]
            runs += grid(root, values, dataset=dataset, pi=pi)
    boards = build_boards(runs, Query())
    return statistics_document(significance.blocks_over_cells(boards, METRICS["map"]))


def test_the_page_states_tests_groups_and_who_was_left_out(tmp_path: Path) -> None:
    text = as_markdown(page_over_six_cells(tmp_path))
    # six blocks that all agree on three methods: χ² = N (k − 1) = 12, p = exp(−6) = 0.0025
    assert "Friedman: χ² = 12.000 (df 2), p = 0.0025; Iman-Davenport F = inf" in text
    # q(0.05, 3) = 2.343: CD = 2.343 √(3 · 4 / 36) = 1.353, so neighbours are not distinguished
    assert "critical difference 1.353 at 0.05; not distinguished: cap, bbam; bbam, bce." in text
    assert "Left out, not measured in every block: late." in text
    assert "are not independent" in text
    assert "Below 10 blocks Friedman's p is rough." in text
    # 2 / 2⁶ = 0.03125, times 3 pairs
    assert "| bbam | bce | +0.0200 | 0.0312 | 0.0938 |" in text
    assert "With 3 pairs on 6 blocks none can: the least there can be is 0.0938." in text


def test_the_pages_json_has_every_pair(tmp_path: Path) -> None:
    found = json.loads(TEXT_FORMATS["json"](page_over_six_cells(tmp_path)))
    (record,) = found["statistics"]
    assert record["friedman"]["chi2"] == pytest.approx(12)
    assert record["friedman"]["f"] is None  # infinite
    assert {(pair["first"], pair["second"]) for pair in record["pairs"]} == {
        ("bbam", "bce"),
        ("bbam", "cap"),
        ("bce", "cap"),
    }
    assert record["cliques"] == [["cap", "bbam"], ["bbam", "bce"]]


def test_a_single_method_is_no_comparison(tmp_path: Path) -> None:
    boards = build_boards(grid(tmp_path, {"bce": [0.5, 0.6]}), Query())
    for gather in (significance.blocks_over_cells, significance.blocks_over_seeds):
        text = as_markdown(statistics_document(gather(boards, METRICS["map"])))
        assert "No test: fewer than two methods" in text


def test_the_interval_of_a_rank_is_that_of_scipys_bootstrap() -> None:
    from scipy import stats

    found = significance.rank_intervals(DEMSAR, higher_is_better=True, draws=4000)
    assert found is not None
    ranks = stats.rankdata(-DEMSAR, axis=1)
    for method in range(4):
        expected = stats.bootstrap(
            (ranks[:, method],),
            np.mean,
            n_resamples=4000,
            method="percentile",
            rng=np.random.default_rng(5),
        ).confidence_interval
        assert found[method] == pytest.approx([expected.low, expected.high], abs=0.08)


def test_ranks_that_never_change_have_no_width_and_two_blocks_no_interval() -> None:
    always = np.array([[0.9, 0.5, 0.1]] * 4)
    found = significance.rank_intervals(always, higher_is_better=True)
    assert found is not None
    assert found.tolist() == [[1, 1], [2, 2], [3, 3]]
    assert significance.rank_intervals(always[:2], higher_is_better=True) is None
