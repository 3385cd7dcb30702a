"""Confidence intervals of a mean, for boards, analyses and `recommend`."""

from __future__ import annotations

import math
from collections.abc import Sequence


def mean_with_interval(
    values: Sequence[float], overlap: float = 0.0
) -> tuple[float, tuple[float, float]]:
    """The mean of at least two values, and its 95 % t interval.

    overlap: for dependent values, the extra variance of their mean, as a fraction of the variance of one
    value. Differences on k folds, which share training rows, have 1 / (k - 1) (Nadeau and Bengio,
    Machine Learning 52, 2003).
    """
    from scipy.special import stdtrit  # the quantile of t; scipy.stats takes long to import

    count = len(values)
    mean = math.fsum(values) / count
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    reach = float(stdtrit(count - 1, 0.975)) * deviation * math.sqrt(1 / count + overlap)
    return mean, (mean - reach, mean + reach)


def fold_overlap(folds: int | None) -> float:
    """The `overlap` of differences on folds, for `mean_with_interval`; 0 without folds."""
    return 1 / (folds - 1) if folds and folds > 1 else 0.0
