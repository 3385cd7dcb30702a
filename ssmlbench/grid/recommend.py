"""What works on a user's data: learners compared by folds of the labelled rows, within a budget.

A learner that takes the lead is trained on every labelled row at once. So there is always a model that can
be used, and the time that is left can be given up at any moment.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import Closing, EpochEnded, Event, Failed
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid.judged_learner import JudgedLearner, training_seconds
from ssmlbench.grid.request import GridRequest, PlannedGrid, expand
from ssmlbench.runs.finished import Finished, Unreadable, read_result
from ssmlbench.runs.folder import RunFolder

if TYPE_CHECKING:
    from ssmlbench.core.events import Listener
    from ssmlbench.grid.dispatch import Dispatch
    from ssmlbench.plugins.loader import Plugins

FLOOR = "prior"
"""It scores every row alike: to be compared with, not to be used."""
BASELINE = "logistic"
"""What must be beaten: it is judged on fewer folds rather than left out."""
CANDIDATES = (
    *(FLOOR, "knn", BASELINE, "bce", "cap", "label_spreading"),
    *("forest", "self_training", "softmatch", "bbam"),
)
"""The order in which learners are tried: floor and baselines first, then by worth and cost."""
LEAST_FOLDS = 2
LABELLING_SHARE = 0.1
"""The part of the budget that is kept for reading the model back and labelling rows."""
FIRST_EPOCHS = 5
"""The number of epochs from which the time of a run is estimated."""
FINAL_RUN = 1.5
"""The run on every labelled row takes longer than a fold: at most so many times, where it was seen."""
OUT_OF_TIME = "left out, the budget has no time for it"


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

    @property
    def left(self) -> float:
        """Seconds that are left for runs: rows are labelled after them."""
        return self.seconds * (1 - LABELLING_SHARE) - self.used


@dataclass(frozen=True)
class Recommended:
    """What a search has found."""

    learners: list[JudgedLearner]  # best first
    winner: JudgedLearner
    run: Finished  # of the winner, on every labelled row


@dataclass
class LearnerSearch:
    """Tries learners one after the other while the budget lasts. Finished runs cost nothing."""

    dataset: str
    plugins: Plugins
    dispatch: Dispatch
    options: dict[str, Any]  # fixed options of every run
    budget: TimeBudget
    candidates: Sequence[str]
    ended: Callable[[RunSpec], None] = lambda spec: None  # called for a run that the budget ended
    expect: Callable[[int], None] = lambda runs: None  # called with how many runs are to come
    report: Callable[[str], None] = lambda line: None  # called with a line for the user

    def search(self, folds: int, listener: Listener) -> Recommended:
        """Judge the learners that fit into the budget; train the best of them on everything."""
        learners, best = list[JudgedLearner](), None
        judged = folds
        for number, name in enumerate(self.candidates):
            if best is not None and self.budget.left <= 0:
                left = ", ".join(self.candidates[number:])
                self.report(f"the budget is used up; not tried: {left}")
                break
            self.expect(judged * (len(self.candidates) - number))
            one = self._judge(name, folds, judged, listener, urgent=best is None)
            if one is None:
                continue
            if len(one.runs) < judged:
                judged = len(one.runs)
                self.report(
                    f"{name}: the budget has time for {judged} of {folds} folds; so for all"
                )
                learners = [other.first(judged) for other in learners]
                best = best and (best[0].first(judged), best[1])
            learners.append(one)
            leads = best is None or math.isnan(best[0].mean) or one.mean > best[0].mean
            if name != FLOOR and leads:
                trained = self._train(one, listener, urgent=best is None)
                best = best if trained is None else (one, trained)
        if best is None and learners:  # the floor is better than nothing
            trained = self._train(learners[0], listener, urgent=True)
            best = None if trained is None else (learners[0], trained)
        if best is None:
            raise UserError("no learner could be run on this data set")
        by_mean = sorted(learners, key=lambda one: (math.isnan(one.mean), -one.mean))
        return Recommended(by_mean, *best)

    def check(self, folds: int, learners: Sequence[str]) -> None:
        """Raise a UserError if one of the learners cannot be run, whatever the data."""
        for method in learners:
            _ = self.plugins.methods[method]
            PlannedGrid.of(self.plugins, self._request(method, folds))

    def specs(self, method: str, folds: int) -> list[RunSpec]:
        """The runs of one learner: a run for each fold; folds 0: one, on every labelled row."""
        return expand(self.plugins, self._request(method, folds))

    def _request(self, method: str, folds: int) -> GridRequest:
        values = {**self.options, "folds": folds, "regime": ("given",)}
        return GridRequest({**values, "method": (method,), "dataset": (self.dataset,)})

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

    def _judge(
        self, name: str, folds: int, judged: int, listener: Listener, urgent: bool
    ) -> JudgedLearner | None:
        """Judge a learner on the first folds; None, and a line of output, if it fails or takes too long.

        folds: the number of folds. judged: the number of them that are judged. urgent: there is no model
        yet, so that the learner is judged even if it exceeds the budget.
        Finished folds are kept: the same command with more time continues from them.
        """
        try:
            specs = self.specs(name, folds=folds)[:judged]
        except UserError as error:
            if name == self.candidates[0]:
                raise
            self.report(f"{name}: left out ({error})")
            return None
        at_once = self.dispatch.plan(specs, self.plugins).jobs or 1
        fewer = urgent or name == BASELINE
        slowest, runs = 0.0, list[Finished]()
        while len(runs) < len(specs):
            part = specs[len(runs) : len(runs) + at_once]
            rounds = math.ceil((len(specs) - len(runs)) / at_once)
            if slowest * (rounds + FINAL_RUN) > self.budget.left:
                if fewer and len(runs) >= LEAST_FOLDS:
                    break
                if not urgent:
                    self.report(f"{name}: left out, the budget has no time for all its folds")
                    return None
            # All its folds, or the fewest that are enough, and its training on all rows must fit.
            least = math.ceil(max(1, LEAST_FOLDS - len(runs)) / at_once)
            share = (least if fewer else rounds) + FINAL_RUN
            limit = None if urgent else self.budget.left / share
            began = self.budget.used
            made = self._made_within(part, listener, limit)
            took = self.budget.used - began
            if made and not runs and name == self.candidates[0]:
                took = max(map(training_seconds, made))  # inputs are encoded once, for all
            slowest = max(slowest, took)
            runs += made or []
            if not made or len(made) < len(part):
                late = made is None or (limit is not None and self.budget.used >= began + limit)
                self.report(
                    f"{name}: {OUT_OF_TIME if late else 'left out, some of its runs failed'}"
                )
                return None
        return JudgedLearner.of(name, runs, folds)

    def _train(self, one: JudgedLearner, listener: Listener, urgent: bool) -> Finished | None:
        """Train a learner on every labelled row; None, and a line, if it fails or takes too long."""
        self.expect(1)
        limit = None if urgent else max(self.budget.left, 0.0)
        made = self._made_within(self.specs(one.name, folds=0), listener, limit)
        if made:
            return made[0]
        self.report(
            f"{one.name}: the best on folds, but its training on every labelled row failed or did not "
            "end within the budget; it is not used"
        )
        return None

    def _made_within(
        self, specs: Sequence[RunSpec], listener: Listener, limit: float | None
    ) -> list[Finished] | None:
        """Make runs of which each may take `limit` seconds; None as soon as one cannot keep to it."""
        try:
            return self.make(specs, self._within(specs, listener, limit), limit)
        except _OutOfTime:
            return None

    def _within(self, part: Sequence[RunSpec], listener: Listener, limit: float | None) -> Listener:
        """A listener that passes events on, and raises _OutOfTime as soon as a run cannot end in time.

        A run that the budget ends has not failed: `report` tells the user about it.
        """
        if limit is None:
            return listener
        end, running = self.budget.used + limit, list(part)  # a spec has no hash of its own

        def pass_on(spec: RunSpec, event: Event) -> None:
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

        return pass_on


class _OutOfTime(Exception):
    """A run will not end in the time that the budget has for it."""


def seconds_left(event: EpochEnded) -> float:
    """An estimate of the seconds that a run still needs, from its epochs so far; 0 after too few of them.

    The first epochs are the fastest: the estimate is rather too low, and no run is ended without need.
    """
    if event.epoch < FIRST_EPOCHS or event.seconds_per_epoch is None:
        return 0.0
    return (event.epochs - event.epoch) * event.seconds_per_epoch
