"""What works on a user's data: learners compared by folds of the labelled rows, within a budget."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ssmlbench.core.errors import UserError
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
    *("prior", "logistic", "self_training", "knn", "bce", "cap"),
    *("label_spreading", "forest", "softmatch", "bbam"),
)
"""The order in which learners are tried: floor and strong baselines first, then by usual worth."""
METRIC = "map"
LEAST_FOLDS = 2


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
    values: tuple[float, ...]  # the metric on each fold, by seed
    seconds: float  # of all its folds

    @property
    def mean(self) -> float:
        """Over folds."""
        return math.fsum(self.values) / len(self.values)

    @property
    def std(self) -> float:
        """Over folds."""
        squares = math.fsum((value - self.mean) ** 2 for value in self.values)
        return math.sqrt(squares / max(len(self.values) - 1, 1))


@dataclass(frozen=True)
class FoldDifference:
    """How much better one learner is than another, over the same folds."""

    mean: float
    interval: tuple[float, float]  # 95 %, paired t

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.interval[0] > 0 or self.interval[1] < 0


def fold_difference(ours: Tried, theirs: Tried) -> FoldDifference:
    """The mean difference over folds, with its paired t interval."""
    each = [a - b for a, b in zip(ours.values, theirs.values, strict=True)]
    return FoldDifference(*mean_with_interval(each))


@dataclass
class Recommendation:
    """Tries learners one after the other while the budget lasts. Finished runs cost nothing."""

    dataset: str
    plugins: Plugins
    dispatch: Dispatch
    options: dict[str, Any]  # fixed options of every run
    budget: float  # seconds
    candidates: Sequence[str] = CANDIDATES
    clock: Callable[[], float] = time.monotonic

    def tried(self, folds: int, listener: Listener, say: Callable[[str], None]) -> list[Tried]:
        """The learners that fitted into the budget, best first."""
        began, found = self.clock(), list[Tried]()
        for name in self.candidates:
            used = self.clock() - began
            # The first one's time is mostly that of encoding the inputs, which is done once.
            longest = max((one.seconds for one in found[1:]), default=0.0)
            if found and used + longest > self.budget and len(found) > 1:
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
            one = self._try(name, specs, listener)
            if one is None:
                say(f"{name}: left out, some of its runs failed")
            else:
                found.append(one)
        if not found:
            raise UserError("no learner could be run on this data set")
        return sorted(found, key=lambda one: -one.mean)

    def specs(self, method: str, folds: int) -> list[RunSpec]:
        """The runs of one learner: a run for each fold; folds 0: one, on every labelled row."""
        values = {**self.options, "folds": folds, "regime": ("given",)}
        request = GridRequest({**values, "method": (method,), "dataset": (self.dataset,)})
        return expand(self.plugins, request)

    def make(self, specs: Sequence[RunSpec], listener: Listener) -> list[Finished]:
        """Make runs, and read those that finished."""
        plan = self.dispatch.plan(specs, self.plugins)
        self.dispatch.run(plan, listener)
        results = self.dispatch.context.results
        read = [read_result(RunFolder.of(results, spec).path) for spec in specs]
        return [run for run in read if not isinstance(run, Unreadable)]

    def _try(self, name: str, specs: Sequence[RunSpec], listener: Listener) -> Tried | None:
        began = self.clock()
        runs = self.make(specs, listener)
        if len(runs) < len(specs):
            return None
        values = tuple(metric_value(run, METRIC, "calibrated", "default") for run in runs)
        uses = str(runs[0].result.get("uses", ""))
        return Tried(name, uses, values, self.clock() - began)
