"""Confidence intervals over test rows: the metrics of resampled test sets, from stored scores.

scipy draws the rows and computes the interval. A draw is a vector with the count of each row, which the
metrics take as row weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ssmlbench.protocol.decisions import decide
from ssmlbench.protocol.metrics import METRICS, Predictions
from ssmlbench.runs.scores import StoredScores

BATCH_BYTES = 16_000_000
LEVEL = 0.95


def bootstrap(
    runs: Sequence[StoredScores],
    metrics: Sequence[str],
    decision: str = "calibrated",
    convention: str = "default",
    draws: int = 1000,
    seed: int = 0,
    baseline: Sequence[StoredScores] = (),
) -> dict[str, tuple[float, float]]:
    """The 95 % percentile interval of each metric's mean over runs (the seeds of a cell) on one test set.

    All runs and metrics are judged on the same resampled rows. An interval covers the variation over test
    sets of this size, not over training runs.
    baseline: other runs, whose mean is subtracted.
    """
    from scipy import stats

    if not metrics:
        return {}
    rows = len(runs[0].truth)
    judged = [*runs, *baseline]
    if any(not np.array_equal(run.truth, runs[0].truth) for run in judged):
        raise ValueError("the runs were judged on different test sets")
    label_sets = [_label_sets(run, metrics, decision) for run in judged]
    shares = [1 / len(runs)] * len(runs) + [-1 / max(len(baseline), 1)] * len(baseline)

    def over_draws(drawn: NDArray[np.int64], axis: int = -1) -> NDArray[np.float64]:
        weights = _row_weights(drawn.reshape(-1, rows))
        values = np.zeros((len(metrics), len(weights)))
        for run, predicted, share in zip(judged, label_sets, shares, strict=True):
            predictions = Predictions(run.scores, run.truth, predicted, weights)
            found = [METRICS[key].value(predictions, convention) for key in metrics]
            values += share * np.asarray(found)
        return values.reshape(len(metrics), *drawn.shape[:-1])

    with warnings.catch_warnings():
        # scipy warns of draws in which a metric has no value.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        found = stats.bootstrap(
            (np.arange(rows),),
            over_draws,
            n_resamples=draws,
            batch=max(1, BATCH_BYTES // (8 * rows)),
            vectorized=True,
            axis=-1,
            confidence_level=LEVEL,
            method="percentile",
            rng=np.random.default_rng(seed),
        )
    ends = found.confidence_interval
    intervals = {}
    for key, low, high, values in zip(
        metrics, ends.low, ends.high, found.bootstrap_distribution, strict=True
    ):
        defined = values[np.isfinite(values)]
        if 0 < len(defined) < len(values):  # a few draws have no positive at all
            low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        intervals[key] = (float(low), float(high))
    return intervals


def _row_weights(drawn: NDArray[np.int64]) -> NDArray[np.float64]:
    """How often each row is in each draw, draws × rows. drawn: row numbers, draws × rows."""
    draws, rows = drawn.shape
    shifted = drawn + np.arange(draws)[:, None] * rows  # one count for all draws together
    counts = np.bincount(shifted.ravel(), minlength=drawn.size)
    return counts.reshape(drawn.shape).astype(np.float64)


def _label_sets(
    run: StoredScores, metrics: Sequence[str], decision: str
) -> NDArray[np.bool_] | None:
    """The label sets of a run; None if no metric needs them."""
    if not any(METRICS[key].uses_decision for key in metrics):
        return None
    return decide(run.scores, decision, truth=run.truth, parameters=run.parameters)
