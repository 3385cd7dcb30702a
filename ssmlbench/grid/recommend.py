"""What works on a user's data: learners compared by folds of the labelled rows, within a budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import Closing, EpochEnded, Event, Failed
from ssmlbench.core.intervals import mean_with_interval
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.request import GridRequest, expand
from ssmlbench.protocol.metrics import average_precision
from ssmlbench.runs.finished import Finished, Unreadable, read_result
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.metric_values import metric_value
from ssmlbench.runs.scores import StoredScores

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
LABELLING_SHARE = 0.1
"""The part of the budget that is kept for reading the model back and labelling rows."""
FIRST_EPOCHS = 5
"""So many epochs tell how long a run will take."""
FINAL_RUN = 1.5
"""The run on every labelled row takes longer than a fold: at most so many times, where it was seen."""


@dataclass(frozen=True)
class Tried:
    """One learner, judged on every fold."""

    name: str
    uses: str  # "labelled rows" or "both pools"
    values: tuple[float, ...]  # mAP on each fold, by seed
    seconds: float  # of all its folds, also of those that an earlier command has made
    micro_f1: tuple[float, ...] = ()  # of the labels that the calibrated rule chooses
    slowest: float = 0.0  # seconds of the slowest fold, with reading and judging
    together: float = math.nan  # mAP of the held-out rows of all folds as one set

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
    """The seconds that a search may take."""

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        began: float | None = None,
    ):
        """began: when it started, by the clock; None: now."""
        self.seconds = seconds
        self.clock = clock
        self.began = clock() if began is None else began

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
            heard = self._within(part, listener, limit)
            try:
                made = self.make(part, heard, limit)
            except _OutOfTime:
                return "the budget has no time for it"
            slowest = max(slowest, self.budget.used - began)
            runs += made
            if len(made) < len(part):
                over = limit is not None and self.budget.used >= began + limit
                return "the budget has no time for it" if over else "some of its runs failed"
        # The first learner's time is mostly that of encoding the inputs, which is done once.
        return _judged(name, runs, slowest if found else 0.0)

    def _within(self, part: Sequence[RunSpec], listener: Listener, limit: float | None) -> Listener:
        """The listener of runs that must end in time; _OutOfTime as soon as one cannot.

        A run that the budget ends has not failed: the search tells of it.
        """
        if limit is None:
            return listener
        end, running = self.budget.used + limit, list(part)  # a spec has no hash of its own

        def heard(spec: RunSpec, event: Event) -> None:
            late = self.budget.used >= end
            if isinstance(event, Failed) and late:
                self.ended(spec)
                return
            listener(spec, event)
            if isinstance(event, Closing):
                running.remove(spec)
            elif isinstance(event, EpochEnded) and self.budget.used + seconds_left(event) > end:
                for other in running:
                    self.ended(other)
                raise _OutOfTime

        return heard


class _OutOfTime(Exception):
    """A run will not end in the time that the budget has for it."""


def seconds_left(event: EpochEnded) -> float:
    """What a run has still to train, by its epochs so far; 0 while too few are made to tell.

    The first epochs are the fastest, so that a run that is said to be late is late.
    """
    if event.epoch < FIRST_EPOCHS or event.seconds_per_epoch is None:
        return 0.0
    return (event.epochs - event.epoch) * event.seconds_per_epoch


def _best(found: Sequence[Tried]) -> Tried:
    return max(found, key=lambda one: one.mean)


def _judged(name: str, runs: Sequence[Finished], slowest: float) -> Tried:
    values, micro_f1 = (
        tuple(metric_value(run, metric, "calibrated", "default") for run in runs)
        for metric in (METRIC, "micro_f1")
    )
    seconds = [run.result["cost"].get("seconds", 0.0) for run in runs]
    uses = str(runs[0].result.get("uses", ""))
    slowest = max(slowest, *seconds)
    together = _map_of_all([StoredScores.read(run.folder) for run in runs])
    return Tried(name, uses, values, math.fsum(seconds), micro_f1, slowest, together)


def _map_of_all(folds: Sequence[StoredScores]) -> float:
    """MAP of all held-out rows as one set.

    A fold has few positives of a rare label, or none: its AP is then far too high, or left out, and the
    mean over folds is not what a large set would give.
    """
    import numpy as np

    scores = np.concatenate([fold.scores for fold in folds])
    truth = np.concatenate([fold.truth for fold in folds])
    return float(np.nanmean(average_precision(scores, truth)))
