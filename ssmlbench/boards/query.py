"""The query of a board: its runs, columns and decision rule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ssmlbench.boards.columns import COLUMNS, Column, column_value
from ssmlbench.boards.versions import NEWEST
from ssmlbench.core.errors import UserError
from ssmlbench.core.hyperparameters import as_typed
from ssmlbench.core.spec import OPTIONS, REGIME_NUMBERS, RunSpec
from ssmlbench.core.suggestions import did_you_mean, one_of, values_without_runs
from ssmlbench.protocol.decisions import RULES
from ssmlbench.protocol.metrics import CONVENTIONS, METRICS
from ssmlbench.protocol.regimes import REGIMES
from ssmlbench.runs.finished import Finished
from ssmlbench.runs.metric_values import Unavailable

MOST_DRAWS = 100_000
"""Of a bootstrap; the draws of a cell are held in memory."""


def column_key(typed: str, columns: Mapping[str, Column] = COLUMNS) -> str:
    """The key of a metric or cost, typed as its key or its title in any spelling: `mAP`, `Micro-F1`."""
    keys = {_letters(name): key for key, c in columns.items() for name in (c.title, key)}
    if _letters(typed) not in keys:
        raise UserError(f"--metric {typed}: no such metric.{did_you_mean(typed, columns)}")
    return keys[_letters(typed)]


def _letters(text: str) -> str:
    """The letters and digits, in small letters."""
    return "".join(filter(str.isalnum, text.casefold()))


def _values(option: str, specs: Iterable[RunSpec]) -> set[str]:
    """The values of a field of the spec, as they are typed."""
    values = {getattr(spec, option) for spec in specs}
    return {as_typed(value) for value in values if value is not None}


@dataclass(frozen=True)
class Query:
    """The runs to show, and how their scores become label sets."""

    datasets: tuple[str, ...] = ()
    regimes: tuple[str, ...] = ()
    # the regimes' numbers, by field of the spec: {"pi": (0.05, 0.1)}
    numbers: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    methods: tuple[str, ...] = ()
    selections: tuple[str, ...] = ()
    metrics: tuple[str, ...] = field(default_factory=lambda: tuple(METRICS))
    decision: str = "calibrated"
    convention: str = "default"
    draws: int = 0  # resampled test sets of the bootstrap; 0: no intervals
    # the row that others are compared with; auto: the best that uses labelled rows only; none
    baseline: str = "auto"
    # which versions of methods' code: newest, all, or the first digits of their digests
    versions: tuple[str, ...] = (NEWEST,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "metrics", tuple(dict.fromkeys(map(column_key, self.metrics))))
        one_of(self.decision, RULES, "--decision")
        one_of(self.convention, CONVENTIONS, "--convention")
        for regime in self.regimes:
            one_of(regime, REGIMES, "--regime")
        for selection in self.selections:
            OPTIONS["selection"].check(selection)
        for name, values in self.numbers.items():
            for value in values:
                OPTIONS[name].check(value)
        if self.draws < 0 or 0 < self.draws < 100:
            raise UserError(
                f"--bootstrap {self.draws}: too few draws for a 95 % interval; take e.g. 1000"
            )
        if self.draws > MOST_DRAWS:
            raise UserError(
                f"--bootstrap {self.draws}: at most {MOST_DRAWS:,} draws; take e.g. 1000"
            )

    def wants(self, spec: RunSpec) -> bool:
        """Whether a run is shown."""
        return (
            spec.judged_on != "nothing"
            and (not self.datasets or spec.dataset in self.datasets)
            and (not self.regimes or spec.regime in self.regimes)
            and self.wants_number(spec.regime, spec.regime_number)
            and (not self.methods or spec.method in self.methods)
            # an estimator has no epochs to select from
            and (not self.selections or spec.is_estimator or spec.selection in self.selections)
        )

    def wants_number(self, regime: str, number: float | None) -> bool:
        """Whether a regime's number is one of those requested, if any is."""
        option = REGIME_NUMBERS.get(regime)
        requested = self.numbers.get(option.name) if option else None
        return not requested or number in requested

    def unfit(self, runs: Sequence[Finished]) -> UserError:
        """The error for a query that none of the finished runs fits: it names a misspelt filter."""
        if not runs:
            return UserError("no finished run here yet; `ssmlbench run` makes one")
        none = f"none of the {len(runs)} finished runs fits"
        for option, typed in self._filters().items():
            found = _values(option, [run.spec for run in runs])
            if typed and not found & {*typed}:
                hint = did_you_mean(typed[0], found)
                return UserError(f"{OPTIONS[option].flag} {','.join(typed)}: {none}.{hint}")
        return UserError(f"{none}; leave a filter out, or make more by `ssmlbench run`")

    def unmet(self, runs: Sequence[Finished]) -> list[str]:
        """Lines that name the values of filters that none of the shown runs has."""
        specs = [run.spec for run in runs]
        shown = list(filter(self.wants, specs))
        lines = []
        for option, typed in self._filters().items():
            found, known = _values(option, shown), _values(option, specs)
            lines += values_without_runs(OPTIONS[option].flag, typed, found, known, "finished run")
        return lines

    def _filters(self) -> dict[str, tuple[str, ...]]:
        """The typed values of each filter, by field of the spec."""
        numbers = {name: tuple(map(as_typed, typed)) for name, typed in self.numbers.items()}
        named = {"method": self.methods, "dataset": self.datasets, "regime": self.regimes}
        return {**named, "selection": self.selections, **numbers}

    def value(self, run: Finished, metric: str) -> float:
        """A run's value of a metric or cost; NaN where it is not available."""
        try:
            return column_value(run, metric, self.decision, self.convention)
        except Unavailable:
            return math.nan
