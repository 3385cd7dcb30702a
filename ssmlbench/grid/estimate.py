"""Estimates the time of unfinished runs from the time that finished ones took."""

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
"""Keys of similar runs, closest first: a run is compared with finished runs of the first shared key."""


@dataclass(frozen=True)
class Remaining:
    """An unfinished run, and how much of it is done."""

    spec: RunSpec
    rows: int  # of the training split
    epochs_done: int = 0


@dataclass(frozen=True)
class Estimate:
    """The time that some runs will take."""

    seconds: float | None  # one run after the other, without unknown ones; None: all are unknown
    unknown: int  # runs without a similar finished run


def estimate(runs: Sequence[Remaining], finished: Iterable[Finished]) -> Estimate:
    """Seconds per step of similar finished runs × the steps left of each run."""
    known: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for run in finished:
        steps, seconds = run.result.get("steps"), run.result["cost"].get("seconds")
        steps = 1 if run.spec.is_estimator else steps
        if steps and seconds is not None:
            for key in _keys(run.spec):
                known[key].append(seconds / steps)
    step_seconds = {key: statistics.median(values) for key, values in known.items()}
    total, unknown = 0.0, 0
    for left in runs:
        per_step = next((step_seconds[k] for k in _keys(left.spec) if k in step_seconds), None)
        if per_step is None:
            unknown += 1
        else:
            total += per_step * steps_left(left)
    return Estimate(None if unknown == len(runs) else total, unknown)


def _keys(spec: RunSpec) -> list[tuple[object, ...]]:
    """Keys of similar runs; an estimator is only compared with itself."""
    ranked = [(rank, spec.learner, *like(spec)) for rank, like in enumerate(LIKE)]
    return ranked[:1] if spec.is_estimator else ranked


def steps_left(run: Remaining) -> int:
    """The steps of the epochs that are not done, counted as the trainer counts them.

    An estimator's fit counts as one.
    """
    spec = run.spec
    if spec.is_estimator:
        return 1
    labelled = REGIMES[spec.regime].labelled_count(run.rows, spec.regime_number)
    unlabelled = run.rows - labelled
    if spec.selection == "val":
        labelled -= max(1, round(VALIDATION_SHARE * labelled))
    warming_up = max(0, spec.warmup_epochs - run.epochs_done)
    training = spec.epochs - max(spec.warmup_epochs, run.epochs_done)
    return sum(
        epochs * steps_an_epoch(spec, labelled, unlabelled, warm)
        for epochs, warm in ((warming_up, True), (max(0, training), False))
    )
