"""A board: one table of methods × (metric, level), and its notes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ssmlbench.boards.columns import Column
from ssmlbench.boards.versions import Versions
from ssmlbench.core.spec import REGIME_NUMBERS
from ssmlbench.runs.finished import Finished


@dataclass(frozen=True)
class Cell:
    """One number of a board."""

    mean: float
    std: float | None  # None for a single seed
    seeds: tuple[int, ...]
    values: tuple[float, ...] = ()  # one for each seed
    place: int = 0  # in its column: 1 is best
    interval: tuple[float, float] | None = None  # over test rows, where requested


@dataclass(frozen=True)
class Difference:
    """A row's metric less that of the baseline, over the seeds that both have."""

    mean: float
    seeds: int  # common to both
    interval: tuple[float, float] | None = None  # 95 %, paired by seed; None for too few seeds
    over_rows: tuple[float, float] | None = None  # over test rows, where requested


@dataclass
class BoardRow:
    """One version of a method or estimator, with the hyper-parameters that are not its defaults."""

    name: str  # with `version`, if there is one
    cells: dict[tuple[str, str], Cell]  # by (metric key, level)
    trials: int  # of the study its hyper-parameters come from; 0: not tuned
    uses: str  # "labelled rows" or "both pools"; empty: its runs did not record it
    is_estimator: bool
    version: str  # digest and day of older code; empty for the method's newest
    rank: float = math.nan  # average place over the board's columns
    differences: dict[str, Difference] = field(default_factory=dict)  # to the baseline, by level

    @property
    def variant(self) -> str:
        """The name without the version."""
        return self.name.removesuffix(self.version).rstrip()


@dataclass
class Board:
    """One table, its rows ordered by average rank."""

    dataset: str
    regime: str
    levels: list[str]  # the regime's numbers (πs, shares) as printed; "" where it has none
    metrics: list[Column]
    decision: str
    selection: str
    convention: str
    setting: dict[str, Any]
    rows: list[BoardRow]
    separate_reason: str  # why it is not the main board of its data set and regime
    missing: list[str]  # runs that a full grid would have
    diverged: list[str]  # trials of a study without scores
    unavailable: list[str]  # values that runs do not have, and why
    unlike_published: list[str]  # how its data differ from the papers'
    # where the numbers come from; not compared
    runs: list[Finished] = field(repr=False, compare=False)
    versions: Versions = field(repr=False, compare=False)
    compared: Column | None = None  # the metric of the rows' differences
    baselines: dict[str, str] = field(default_factory=dict)  # level → the row compared with
    hidden: dict[str, int] = field(default_factory=dict)  # older versions that are not shown: runs

    @property
    def mixed_cells(self) -> list[str]:
        """The cells whose mean is over runs of different devices, e.g. `bce π 0.1`."""
        if len(devices_of(self.runs)) < 2:
            return []
        return [cell for cell, runs in self._runs_of_cells() if len(devices_of(runs)) > 1]

    @property
    def repeated_seeds(self) -> list[str]:
        """The cells with two runs of one seed, which count twice in the mean.

        They differ in something that neither the name of their row nor the setting tells, such as the
        winners of two studies of the same size.
        """
        repeated = []
        for cell, runs in self._runs_of_cells():
            counts = Counter(run.spec.seed for run in runs)
            if twice := sorted(seed for seed, count in counts.items() if count > 1):
                repeated.append(f"{cell} seed {', '.join(map(str, twice))}")
        return repeated

    def _runs_of_cells(self) -> list[tuple[str, list[Finished]]]:
        """The runs of each row and level, by a text such as `bce π 0.1`."""
        cells: dict[tuple[str, str], list[Finished]] = defaultdict(list)
        for run in self.runs:
            cells[self.row_of(run), run.spec.level].append(run)
        return [
            (f"{name} {self.axis} {level}".rstrip(), runs)
            for (name, level), runs in sorted(cells.items())
        ]

    def row_of(self, run: Finished) -> str:
        """The name of the row that a run of the board belongs to."""
        return self.versions.row_name(run.spec)

    @property
    def budgets(self) -> dict[int, list[str]]:
        """Rows by the number of trials they were tuned with, most first; one entry if all are equal."""
        budgets: dict[int, list[str]] = {}
        for row in sorted(self.rows, key=lambda row: -row.trials):
            budgets.setdefault(row.trials, []).append(row.name)
        return budgets

    @property
    def axis(self) -> str:
        """The symbol of its levels; empty where the regime has none."""
        return number.symbol if (number := REGIME_NUMBERS.get(self.regime)) else ""

    @property
    def columns(self) -> list[tuple[Column, str]]:
        """Every metric at every level."""
        return [(metric, level) for metric in self.metrics for level in self.levels]

    @property
    def mixed(self) -> dict[str, dict[str, int]]:
        """Devices and torch versions of the runs, with their counts, where there are several."""
        made_with = [run.result.get("made_with", {}) for run in self.runs]
        # the build after the + goes with the device
        versions = Counter(str(m["torch"]).partition("+")[0] for m in made_with if m.get("torch"))
        counts = {"devices": devices_of(self.runs), "torch versions": versions}
        return {name: dict(sorted(c.items())) for name, c in counts.items() if len(c) > 1}


def devices_of(runs: Iterable[Finished]) -> Counter[str]:
    """The devices that methods were trained on; estimators are fitted on the CPU everywhere."""
    made_with = (r.result.get("made_with", {}) for r in runs if not r.spec.is_estimator)
    return Counter(str(made["device"]) for made in made_with if made.get("device"))


def level_number(level: str) -> float:
    """The number of a level, by which levels are ordered."""
    return float(level or 0)


def unlike_published(run: Finished) -> list[str]:
    """The recorded differences of the run's data to the data set that papers describe."""
    return list(run.result.get("data", {}).get("unlike_published", ()))
