"""Intervals of a mean, as boards, analyses and `recommend` state them."""

from __future__ import annotations

import math
from collections.abc import Sequence


def mean_with_interval(values: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """The mean of at least two values, and its 95 % t interval."""
    from scipy.special import stdtrit  # the quantile of t; scipy.stats takes long to import

    count = len(values)
    mean = math.fsum(values) / count
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    reach = float(stdtrit(count - 1, 0.975)) * deviation / math.sqrt(count)
    return mean, (mean - reach, mean + reach)
