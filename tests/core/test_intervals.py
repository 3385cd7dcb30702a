"""The t interval of a mean, against scipy's own."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ssmlbench.core.intervals import mean_with_interval


@pytest.mark.parametrize("count", [2, 3, 10])
def test_the_interval_is_that_of_scipy(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count).tolist()
    mean, interval = mean_with_interval(values)
    expected = stats.t.interval(0.95, count - 1, loc=np.mean(values), scale=stats.sem(values))
    assert mean == pytest.approx(np.mean(values))
    assert interval == pytest.approx(expected)


def test_what_values_share_widens_their_interval() -> None:
    values = [0.1, 0.3, 0.2, 0.5, 0.4]
    mean, (low, high) = mean_with_interval(values, overlap=0.25)
    scale = np.std(values, ddof=1) * np.sqrt(1 / 5 + 1 / 4)
    assert (low, high) == pytest.approx(stats.t.interval(0.95, 4, loc=mean, scale=scale))
