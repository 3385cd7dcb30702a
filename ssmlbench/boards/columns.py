"""The columns of a board: metrics, and the cost of runs."""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass

from ssmlbench.protocol.metrics import METRICS, Metric
from ssmlbench.runs.finished import Finished
from ssmlbench.runs.metric_values import Unavailable, metric_value


@dataclass(frozen=True)
class Cost:
    """The cost of a run: a field of the result's `cost`. It counts for ranks only without metrics."""

    key: str
    title: str
    higher_is_better: bool = False
    uses_decision: bool = False


Column = Metric | Cost

COSTS = {
    cost.key: cost
    for cost in (Cost("seconds_per_epoch", "s/epoch"), Cost("peak_memory_mb", "peak MB"))
}
COLUMNS: Mapping[str, Column] = ChainMap[str, Column]({**COSTS}, METRICS)  # type: ignore[arg-type]
"""Every column by its key; metrics that are added later are in it."""


def column_value(run: Finished, key: str, decision: str, convention: str) -> float:
    """A run's value of a metric or cost; raises `Unavailable` where there is none.

    NaN does not count as a value: it would make means over seeds and places wrong.
    """
    if key not in COSTS:
        value = metric_value(run, key, decision, convention)
        if math.isnan(value):
            raise Unavailable("not defined on its test rows, e.g. without a positive label")
        return value
    try:
        return float(run.result["cost"][key])
    except KeyError:
        raise Unavailable(f"the result has no {key}") from None
