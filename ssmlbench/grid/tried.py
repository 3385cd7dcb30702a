"""A learner that was judged on folds of the labelled rows: how good it is, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ssmlbench.core.intervals import fold_overlap, mean_with_interval
from ssmlbench.protocol.metrics import average_precision
from ssmlbench.runs.metric_values import metric_value
from ssmlbench.runs.scores import StoredScores

if TYPE_CHECKING:
    from ssmlbench.runs.finished import Finished

METRIC = "map"
BLOCKS = 20
"""Blocks of rows that are left out in turn, for the interval of a metric of all held-out rows."""

LowHigh = tuple[float, float]


@dataclass(frozen=True)
class Tried:
    """One learner, judged on every fold."""

    name: str
    uses: str  # "labelled rows" or "both pools"
    runs: tuple[Finished, ...]  # one a fold, by seed
    folds: int  # into how many the labelled rows are divided; fewer may be judged
    values: tuple[float, ...]  # mAP on each fold
    micro_f1: tuple[float, ...]  # of the labels that the calibrated rule chooses
    seconds: tuple[float, ...]  # of each fold, also of those that an earlier command has made

    @classmethod
    def of(cls, name: str, runs: Sequence[Finished], folds: int) -> Tried:
        """Read how good a learner is from its runs."""
        values, micro_f1 = (
            tuple(metric_value(run, metric, "calibrated", "default") for run in runs)
            for metric in (METRIC, "micro_f1")
        )
        seconds = tuple(training_seconds(run) for run in runs)
        uses = str(runs[0].result.get("uses", ""))
        return cls(name, uses, tuple(runs), folds, values, micro_f1, seconds)

    def first(self, count: int) -> Tried:
        """The same learner on the first folds only."""
        cut = {name: getattr(self, name)[:count] for name in ("runs", "values", "micro_f1")}
        return replace(self, **cut, seconds=self.seconds[:count])

    @property
    def mean(self) -> float:
        """Of mAP over folds."""
        return mean_and_deviation(self.values)[0]

    @property
    def std(self) -> float:
        """Of mAP over folds."""
        return mean_and_deviation(self.values)[1]

    @property
    def expected_micro_f1(self) -> tuple[float, LowHigh]:
        """Micro-F1 over folds, with its 95 % interval."""
        mean, (low, high) = mean_over_folds(self.micro_f1, self.folds)
        return mean, (max(0.0, low), min(1.0, high))

    @property
    def expected_map(self) -> tuple[float, LowHigh]:
        """The mAP of all held-out rows as one set, with its 95 % interval."""
        return map_of_all([StoredScores.read(run.folder) for run in self.runs])


def training_seconds(run: Finished) -> float:
    """The seconds that a run has trained, without reading and encoding."""
    return float(run.result["cost"].get("seconds", 0.0))


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the standard deviation of the values that are finite; NaN if none is."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return math.nan, math.nan
    mean = math.fsum(finite) / len(finite)
    squares = math.fsum((value - mean) ** 2 for value in finite)
    return mean, math.sqrt(squares / max(len(finite) - 1, 1))


@dataclass(frozen=True)
class FoldDifference:
    """How much better one learner is than another, over the same folds."""

    mean: float
    interval: LowHigh  # 95 %, paired t, wider for the training rows that folds share

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.interval[0] > 0 or self.interval[1] < 0


def fold_difference(ours: Tried, theirs: Tried) -> FoldDifference:
    """The mean difference over folds, with its paired t interval."""
    each = [a - b for a, b in zip(ours.values, theirs.values, strict=True)]
    return FoldDifference(*mean_over_folds(each, ours.folds))


def mean_over_folds(values: Sequence[float], folds: int) -> tuple[float, LowHigh]:
    """The mean of some folds' values and its 95 % interval, which is unbounded for fewer than two.

    A fold without a positive has no mAP: its value is NaN and does not count.
    """
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return mean_and_deviation(values)[0], (-math.inf, math.inf)
    return mean_with_interval(finite, fold_overlap(folds))


def map_of_all(folds: Sequence[StoredScores]) -> tuple[float, LowHigh]:
    """The mAP of all held-out rows as one set, and its 95 % interval.

    A fold has few positives of a rare label, or none: its AP is then far too high, or left out, and the
    mean over folds is not what a large set would give. The interval is a jackknife's: blocks of rows are
    left out in turn.
    """
    import numpy as np
    from scipy.special import stdtrit

    scores = np.concatenate([fold.scores for fold in folds])
    truth = np.concatenate([fold.truth for fold in folds])
    judged = truth.any(axis=0)  # labels without a positive have no AP
    scores, truth = scores[:, judged], truth[:, judged]
    if not judged.any():
        return math.nan, (0.0, 1.0)
    whole = float(np.nanmean(average_precision(scores, truth)))
    blocks = min(BLOCKS, len(scores))
    block_of = np.arange(len(scores)) % blocks
    left = [(scores[block_of != b], truth[block_of != b]) for b in range(blocks)]
    without = np.array([np.nanmean(average_precision(*rest)) for rest in left if rest[1].any()])
    if len(without) < 2:
        return whole, (0.0, 1.0)
    error = math.sqrt((blocks - 1) / blocks * float(((without - without.mean()) ** 2).sum()))
    reach = float(stdtrit(blocks - 1, 0.975)) * error
    return whole, (max(0.0, whole - reach), min(1.0, whole + reach))
