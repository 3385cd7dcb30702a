"""Differences of two rows by metric and by label, and the seeds that a paired t test needs to see one."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ssmlbench.boards.baseline import LEAST_SEEDS
from ssmlbench.boards.query import Query
from ssmlbench.core.intervals import mean_with_interval
from ssmlbench.protocol.metrics import METRICS, average_precision
from ssmlbench.runs.finished import Finished
from ssmlbench.runs.scores import StoredScores

LEVEL, POWER = 0.05, 0.8
MOST_SEEDS = 10_000


@dataclass(frozen=True)
class MetricDifference:
    """a − b of one metric over the common seeds; as a record, its fields are the columns."""

    metric: str
    a: float
    b: float
    difference: float
    low: float  # of the 95 % interval over test rows
    high: float
    low_over_seeds: float  # of the paired 95 % t interval; NaN with fewer than LEAST_SEEDS seeds
    high_over_seeds: float
    std_over_seeds: float
    seeds: int
    minimum_detectable: float  # NaN with one seed
    seeds_needed: int | None

    @property
    def first_ahead(self) -> bool:
        """Whether a is the better one; also at a difference of 0, for metrics where more is better."""
        return (self.difference >= 0) == METRICS[self.metric].higher_is_better

    @property
    def is_sure(self) -> bool:
        """Whether 0 lies outside of both intervals: one alone says nothing of other seeds or other rows."""
        above = self.low > 0 and self.low_over_seeds > 0
        return above or (self.high < 0 and self.high_over_seeds < 0)


@dataclass(frozen=True)
class LabelDifferences:
    """Mean a − b of each label's average precision, and its deviation over seeds."""

    names: Sequence[str]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    seeds: int


def metric_difference(
    key: str,
    runs_a: Sequence[Finished],
    runs_b: Sequence[Finished],
    query: Query,
    interval: tuple[float, float],
) -> MetricDifference:
    """The difference of one metric; runs_a and runs_b: in the same order of seeds."""
    values_a, values_b = (
        np.asarray([query.value(run, key) for run in runs], dtype=float)
        for runs in (runs_a, runs_b)
    )
    by_seed = values_a - values_b
    seeds, difference = len(by_seed), float(by_seed.mean())
    deviation = float(by_seed.std(ddof=1)) if seeds > 1 else math.nan
    over_seeds = (math.nan, math.nan)
    if seeds >= LEAST_SEEDS:
        over_seeds = mean_with_interval(by_seed.tolist())[1]
    return MetricDifference(
        key,
        float(values_a.mean()),
        float(values_b.mean()),
        difference,
        *interval,
        *over_seeds,
        std_over_seeds=deviation,
        seeds=seeds,
        minimum_detectable=detectable(seeds, deviation) if seeds > 1 else math.nan,
        seeds_needed=seeds_needed(difference, deviation) if seeds > 1 else None,
    )


def label_differences(
    names: Sequence[str], a: Sequence[StoredScores], b: Sequence[StoredScores]
) -> LabelDifferences:
    """The differences of each label's average precision; a and b: in the same order of seeds."""
    by_seed = np.stack(
        [
            np.asarray(average_precision(one.scores, one.truth))
            - np.asarray(average_precision(two.scores, two.truth))
            for one, two in zip(a, b, strict=True)
        ]
    )
    seeds, labels = by_seed.shape
    deviation = by_seed.std(axis=0, ddof=1) if seeds > 1 else np.zeros(labels)
    return LabelDifferences(names, by_seed.mean(axis=0), deviation, seeds)


def seeds_needed(difference: float, deviation: float) -> int | None:
    """Seeds for a paired t test to see a difference with 80 % power at 0.05; None: more than MOST_SEEDS."""
    if not detectable(MOST_SEEDS, deviation) <= abs(difference) or difference == 0:
        return None
    counts = range(2, MOST_SEEDS + 1)  # more seeds detect less
    return counts[
        bisect.bisect_left(counts, True, key=lambda n: detectable(n, deviation) <= abs(difference))
    ]


def detectable(seeds: int, deviation: float) -> float:
    """The smallest mean difference that a paired t test sees with 80 % power at 0.05.

    δ · s / √n, where noncentral t with n − 1 degrees of freedom and noncentrality δ exceeds the critical
    value with that probability.
    """
    from scipy.special import nctdtrinc, stdtrit

    critical = stdtrit(seeds - 1, 1 - LEVEL / 2)
    return float(nctdtrinc(seeds - 1, 1 - POWER, critical)) * deviation / math.sqrt(seeds)
