"""The audit of sources: rows for which two of them print different numbers.

A row is a method on a data set in a regime at one π or share, and one metric. Papers copy numbers
from each other or run a baseline again; which of the two happened is not known here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ssmlbench.boards.papers import Interval
from ssmlbench.boards.published import PublishedValue


@dataclass(frozen=True)
class Disagreement:
    """One row whose printed numbers differ by more than their rounding; lowest first."""

    values: tuple[PublishedValue, ...]

    @property
    def first(self) -> PublishedValue:
        """Any of the values: they agree in data set, regime, level, method and metric."""
        return self.values[0]

    @property
    def spread(self) -> float:
        """The largest number less the smallest, as a fraction."""
        return self.values[-1].value - self.values[0].value

    @property
    def within_deviations(self) -> bool:
        """Whether the extremes are less than the sum of their printed standard deviations apart."""
        deviations = [value.std for value in (self.values[0], self.values[-1])]
        return None not in deviations and self.spread <= sum(d for d in deviations if d is not None)


def find_disagreements(values: Sequence[PublishedValue]) -> list[Disagreement]:
    """Return every row that two sources print with different numbers, in the files' order."""
    rows: dict[tuple[str, ...], list[PublishedValue]] = defaultdict(list)
    for value in values:
        key = (value.dataset, value.regime, value.level, value.method, value.metric)
        rows[key].append(value)
    disagreements = []
    for members in rows.values():
        ordered = tuple(sorted(members, key=lambda value: value.value))
        if not _printed(ordered[0]).meets(_printed(ordered[-1])):
            disagreements.append(Disagreement(ordered))
    return disagreements


def _printed(value: PublishedValue) -> Interval:
    """The numbers that round to the printed one."""
    slack = value.rounding + 1e-12  # 0.705 and 0.7050 are one number in binary too
    return Interval(value.value - slack, value.value + slack)
