"""Confidence intervals over test rows: the metrics of resampled test sets, from stored scores.

scipy draws the rows and reads off the interval. A draw is a vector of how often each row was drawn,
so that no draw sorts anything again: a thousand draws cost less than a hundred evaluations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ssmlbench.core.errors import UserError
from ssmlbench.protocol.metrics import decide

BATCH_BYTES = 16_000_000
Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]  # draws × rows → draws


@dataclass(frozen=True)
class Scored:
    """What a run stores about the test set; rows × labels."""

    scores: NDArray
    truth: NDArray[np.bool_]
    thresholds: NDArray  # one a label, for calibrated decisions

    @classmethod
    def read(cls, folder: Path) -> Scored:
        from safetensors.numpy import load_file

        file = folder / "scores.safetensors"
        if not file.is_file():
            raise UserError(
                f"--bootstrap needs the runs' stored scores, and {file} is not there: give the results "
                "folder (--results) that has them, or leave --bootstrap out"
            )
        stored = load_file(file)
        return cls(stored["scores"], stored["truth"] == 1, stored["thresholds"])


def bootstrap(
    runs: Sequence[Scored],
    metric: str,
    decision: str = "calibrated",
    convention: str = "default",
    draws: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> tuple[float, float]:
    """The percentile interval of a metric's mean over runs (the seeds of a cell) on one test set.

    All runs are judged on the same resampled rows. It says how far the number may move with another
    test set of this size, not with another training run.
    """
    from scipy import stats

    rows = len(runs[0].truth)
    if any(not np.array_equal(run.truth, runs[0].truth) for run in runs):
        raise ValueError("the runs were judged on different test sets")
    statistics = [statistic(run, metric, decision, convention) for run in runs]

    def over_draws(drawn: NDArray[np.int64], axis: int = -1) -> NDArray[np.float64]:
        flat = drawn.reshape(-1, rows)
        shifted = flat + np.arange(len(flat))[:, None] * rows
        times = np.bincount(shifted.ravel(), minlength=flat.size).reshape(flat.shape)
        weights = times.astype(np.float64)
        return np.mean([one(weights) for one in statistics], axis=0).reshape(drawn.shape[:-1])

    found = stats.bootstrap(
        (np.arange(rows),),
        over_draws,
        n_resamples=draws,
        batch=max(1, BATCH_BYTES // (8 * rows)),
        vectorized=True,
        axis=-1,
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def statistic(run: Scored, metric: str, decision: str, convention: str) -> Statistic:
    """The metric as a function of how often each row counts (draws × rows → draws)."""
    if metric == "map":
        return _mean_ap(run, convention)
    if metric == "one_loss":
        wrong = _wrong_at_the_top(run, convention)
        return lambda weights: weights @ wrong / weights.sum(axis=1)
    predicted = decide(run.scores, decision, truth=run.truth, thresholds=run.thresholds)
    hits = (run.truth & predicted).astype(np.float64)
    either = run.truth.astype(np.float64) + predicted  # 2TP + FP + FN when summed
    if metric == "macro_f1":
        return _macro_f1(hits, either, run.truth.astype(np.float64), convention)
    hit, any_ = hits.sum(axis=1), either.sum(axis=1)
    if metric == "micro_f1":
        return lambda weights: 2 * (weights @ hit) / np.maximum(weights @ any_, 1)
    if metric == "hamming":
        cells = run.truth.shape[1]
        return lambda weights: weights @ (any_ - 2 * hit) / (weights.sum(axis=1) * cells)
    raise ValueError(f"no bootstrap of {metric}: it is not a metric of the test rows")


def _wrong_at_the_top(run: Scored, convention: str) -> NDArray[np.float64]:
    top = run.scores == run.scores.max(axis=1, keepdims=True)
    right = top & run.truth
    if convention == "released":
        return 1.0 - right.any(axis=1)
    return 1.0 - right.sum(axis=1) / top.sum(axis=1)


def _macro_f1(
    hits: NDArray[np.float64],
    either: NDArray[np.float64],
    truth: NDArray[np.float64],
    convention: str,
) -> Statistic:
    def value(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        f1 = 2 * (weights @ hits) / np.maximum(weights @ either, 1)
        return _over_labels(f1, weights @ truth > 0, convention)

    return value


def _mean_ap(run: Scored, convention: str) -> Statistic:
    labels = [_by_score(run.scores[:, k], run.truth[:, k]) for k in range(run.truth.shape[1])]

    def value(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        ap = np.zeros((len(weights), len(labels)))
        for label, (order, positives, group, last) in enumerate(labels):
            reach = weights[:, order].cumsum(axis=1)[:, group]
            own = weights[:, positives]
            found = own.cumsum(axis=1)
            precision = found[:, last] / np.maximum(reach, 1)
            ap[:, label] = (own * precision).sum(axis=1) / np.maximum(own.sum(axis=1), 1)
        return _over_labels(ap, weights @ run.truth > 0, convention)

    return value


def _by_score(scores: NDArray, truth: NDArray[np.bool_]) -> tuple[NDArray[np.intp], ...]:
    """One label's rows from the highest score down; its positives in that order; and for each of
    them where its group of equal scores ends, among the rows and among the positives."""
    order = np.argsort(scores, kind="stable")[::-1]
    ranked = -scores[order].astype(np.float64)
    positives = order[truth[order]]
    own = -scores[positives].astype(np.float64)
    group = np.searchsorted(ranked, own, side="right") - 1
    last = np.searchsorted(own, own, side="right") - 1
    return order, positives, group, last


def _over_labels(
    values: NDArray[np.float64], has_positive: NDArray[np.bool_], convention: str
) -> NDArray[np.float64]:
    """draws × labels → draws; labels without a positive are left out, or count 0 when released."""
    total = np.where(has_positive, values, 0).sum(axis=1)
    if convention == "released":
        return total / has_positive.shape[1]
    count = has_positive.sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
