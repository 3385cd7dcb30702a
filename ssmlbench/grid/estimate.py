"""How long the runs that are to be made will take, judged by the ones that are finished."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ssmlbench.core.spec import RunSpec
from ssmlbench.protocol.observation import VALIDATION_SHARE
from ssmlbench.protocol.regimes import REGIMES
from ssmlbench.runs.finished import Finished
from ssmlbench.training.batching import steps_an_epoch

LIKE: tuple[Callable[[RunSpec], tuple[object, ...]], ...] = (
    lambda s: (s.backbone, s.freeze, s.dataset, s.method),
    lambda s: (s.backbone, s.freeze, s.dataset),
    lambda s: (s.backbone, s.freeze, s.method),
    lambda s: (s.backbone, s.freeze),
)
"""Which finished runs a run is judged by: the most alike that there are."""


@dataclass(frozen=True)
class Remaining:
    """A run that is to be made, and how much of it is done already."""

    spec: RunSpec
    rows: int  # of the training split
    epochs_done: int = 0


@dataclass(frozen=True)
class Estimate:
    seconds: float | None  # of all runs that can be judged, one after the other; None: of none
    unknown: int  # runs there is nothing to judge by


def estimate(runs: Sequence[Remaining], finished: Iterable[Finished]) -> Estimate:
    """Seconds a step of finished runs like it × the steps a run has before it."""
    known: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for made in finished:
        if made.result.get("steps"):
            seconds = made.result["cost"]["seconds"] / made.result["steps"]
            for key in _keys(made.spec):
                known[key].append(seconds)
    paces = {key: statistics.median(values) for key, values in known.items()}
    total, unknown = 0.0, 0
    for run in runs:
        pace = next((paces[key] for key in _keys(run.spec) if key in paces), None)
        if pace is None:
            unknown += 1
        else:
            total += pace * steps_left(run)
    return Estimate(None if unknown == len(runs) else total, unknown)


def _keys(spec: RunSpec) -> list[tuple[object, ...]]:
    return [(rank, *like(spec)) for rank, like in enumerate(LIKE)]


def steps_left(run: Remaining) -> int:
    """The steps of the epochs that are not done, counted as the trainer counts them."""
    spec = run.spec
    labelled = REGIMES[spec.regime].labelled_count(run.rows, spec.regime_number)
    unlabelled = run.rows - labelled
    if spec.selection == "val":
        labelled -= max(1, round(VALIDATION_SHARE * labelled))
    return sum(
        steps_an_epoch(spec, labelled, unlabelled, epoch < spec.warmup_epochs)
        for epoch in range(run.epochs_done, spec.epochs)
    )
