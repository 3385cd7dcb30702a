"""What works on a user's data: learners compared by folds of the labelled rows, within a budget."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import Event, Failed
from ssmlbench.core.intervals import mean_with_interval
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.request import GridRequest, expand
from ssmlbench.runs.finished import Finished, Unreadable, read_result
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.metric_values import metric_value

if TYPE_CHECKING:
    from ssmlbench.core.events import Listener
    from ssmlbench.grid.dispatch import Dispatch
    from ssmlbench.plugins.loader import Plugins

CANDIDATES = (
    *("prior", "logistic", "knn", "bce", "cap", "label_spreading"),
    *("forest", "self_training", "softmatch", "bbam"),
)
"""The order in which learners are tried: floor and strong baselines first, then by worth and cost."""
METRIC = "map"
LEAST_LEARNERS = 2
"""So many are tried whatever they take: a floor, and the baseline that is to be beaten."""
LABELLING_SHARE = 0.05
"""The part of the budget that is kept for reading the model back and labelling rows."""
FINAL_RUN = 1.5
"""The run on every labelled row takes longer than a fold: at most so many times, where it was seen."""


def seconds_of(text: str) -> float:
    """`30m`, `2h`, `90s` or `1h30m` → seconds."""
    parts = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text.strip())
    if not text.strip() or parts is None:
        raise UserError(f"--budget {text}: expected a time such as 30m, 2h or 90s")
    hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return 3600.0 * hours + 60 * minutes + seconds


@dataclass(frozen=True)
class Tried:
    """One learner, judged on every fold."""

    name: str
    uses: str  # "labelled rows" or "both pools"
    values: tuple[float, ...]  # mAP on each fold, by seed
    seconds: float  # of all its folds, also of those that an earlier command has made
    micro_f1: tuple[float, ...] = ()  # of the labels that the calibrated rule chooses
    slowest: float = 0.0  # seconds of the slowest fold, with reading and judging

    @property
    def mean(self) -> float:
        """Of mAP over folds."""
        return mean_and_deviation(self.values)[0]

    @property
    def std(self) -> float:
        """Of mAP over folds."""
        return mean_and_deviation(self.values)[1]


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the standard deviation of some values."""
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(squares / max(len(values) - 1, 1))


@dataclass(frozen=True)
class FoldDifference:
    """How much better one learner is than another, over the same folds."""

    mean: float
    interval: tuple[float, float]  # 95 %, paired t, wider for the training rows that folds share

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.interval[0] > 0 or self.interval[1] < 0


def fold_difference(ours: Tried, theirs: Tried) -> FoldDifference:
    """The mean difference over folds, with its paired t interval."""
    each = [a - b for a, b in zip(ours.values, theirs.values, strict=True)]
    return FoldDifference(*mean_with_interval(each, overlap=1 / (len(each) - 1)))


class TimeBudget:
    """The seconds that a search may take, counted from when this object is made."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic):
        self.seconds = seconds
        self.clock = clock
        self.began = clock()

    @property
    def used(self) -> float:
        """Seconds since the start."""
        return self.clock() - self.began

    def left(self, fold_seconds: float) -> float:
        """Seconds that are left for folds, if the winner's take so long: it is trained once more."""
        kept = FINAL_RUN * fold_seconds + LABELLING_SHARE * self.seconds
        return self.seconds - kept - self.used


@dataclass
class Recommendation:
    """Tries learners one after the other while the budget lasts. Finished runs cost nothing."""

    dataset: str
    plugins: Plugins
    dispatch: Dispatch
    options: dict[str, Any]  # fixed options of every run
    budget: TimeBudget
    candidates: Sequence[str] = CANDIDATES
    ended: Callable[[RunSpec], None] = lambda spec: None  # called for a run that the budget ended

    def tried(self, folds: int, listener: Listener, say: Callable[[str], None]) -> list[Tried]:
        """The learners that fitted into the budget, best first."""
        found = list[Tried]()
        for name in self.candidates:
            if len(found) >= LEAST_LEARNERS and self.budget.left(_best(found).slowest) <= 0:
                left = ", ".join(self.candidates[self.candidates.index(name) :])
                say(f"the budget is used up; not tried: {left}")
                break
            try:
                specs = self.specs(name, folds=folds)
            except UserError as error:
                if not found and name == self.candidates[0]:
                    raise
                say(f"{name}: left out ({error})")
                continue
            one = self._try(name, specs, listener, found)
            if isinstance(one, Tried):
                found.append(one)
            else:
                say(f"{name}: left out, {one}")
        if not found:
            raise UserError("no learner could be run on this data set")
        return sorted(found, key=lambda one: -one.mean)

    def specs(self, method: str, folds: int) -> list[RunSpec]:
        """The runs of one learner: a run for each fold; folds 0: one, on every labelled row."""
        values = {**self.options, "folds": folds, "regime": ("given",)}
        request = GridRequest({**values, "method": (method,), "dataset": (self.dataset,)})
        return expand(self.plugins, request)

    def make(
        self, specs: Sequence[RunSpec], listener: Listener, time_limit: float | None = None
    ) -> list[Finished]:
        """Make runs, and read those that finished. time_limit: seconds that each may train."""
        dispatch = replace(
            self.dispatch, context=replace(self.dispatch.context, time_limit=time_limit)
        )
        dispatch.run(dispatch.plan(specs, self.plugins), listener)
        results = dispatch.context.results
        read = [read_result(RunFolder.of(results, spec).path) for spec in specs]
        return [run for run in read if not isinstance(run, Unreadable)]

    def _try(
        self, name: str, specs: Sequence[RunSpec], listener: Listener, found: Sequence[Tried]
    ) -> Tried | str:
        """Judge a learner on every fold, as many at a time as the machine takes; or say why not.

        Folds that are made are kept: the same command with more time goes on from them.
        """
        at_once = self.dispatch.plan(specs, self.plugins).jobs or 1
        limited, slowest = len(found) >= LEAST_LEARNERS, 0.0
        best = _best(found).slowest if found else 0.0
        runs: list[Finished] = []
        while len(runs) < len(specs):
            part = specs[len(runs) : len(runs) + at_once]
            rounds = math.ceil((len(specs) - len(runs)) / at_once)
            if limited and slowest * rounds > self.budget.left(max(best, slowest)):
                return "the budget has no time for all its folds"
            # All its folds, and its last training if it wins, must fit.
            limit = self.budget.left(0) / (rounds + FINAL_RUN) if limited else None
            began = self.budget.used
            heard = self._without_timeouts(listener, limit)
            made = self.make(part, heard, limit)
            slowest = max(slowest, self.budget.used - began)
            runs += made
            if len(made) < len(part):
                over = limit is not None and slowest >= limit
                return "the budget has no time for it" if over else "some of its runs failed"
        # The first learner's time is mostly that of encoding the inputs, which is done once.
        return _judged(name, runs, slowest if found else 0.0)

    def _without_timeouts(self, listener: Listener, limit: float | None) -> Listener:
        """The listener without failures of runs that the budget ended: the search tells of them."""
        if limit is None:
            return listener
        end = self.budget.used + limit

        def heard(spec: RunSpec, event: Event) -> None:
            if isinstance(event, Failed) and self.budget.used >= end:
                self.ended(spec)
            else:
                listener(spec, event)

        return heard


def _best(found: Sequence[Tried]) -> Tried:
    return max(found, key=lambda one: one.mean)


def _judged(name: str, runs: Sequence[Finished], slowest: float) -> Tried:
    values, micro_f1 = (
        tuple(metric_value(run, metric, "calibrated", "default") for run in runs)
        for metric in (METRIC, "micro_f1")
    )
    seconds = [run.result["cost"].get("seconds", 0.0) for run in runs]
    uses = str(runs[0].result.get("uses", ""))
    return Tried(name, uses, values, math.fsum(seconds), micro_f1, max(slowest, *seconds))
