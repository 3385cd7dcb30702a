"""The values of a run's metrics: as the run stored them, or computed from its scores.

A run stores the metrics and decision rules of its time. Those that were added since are computed from
scores.safetensors when they are needed, and kept in computed.json beside the result, which itself is
never rewritten.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ssmlbench.core.errors import is_passing
from ssmlbench.core.files import read_json, write_json
from ssmlbench.protocol import decisions, matrices, metrics
from ssmlbench.protocol.decisions import RULES, DecisionRule
from ssmlbench.protocol.metrics import METRICS, Metric, evaluate_rules
from ssmlbench.runs.finished import Finished
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.schema import MetricValues, SchemaError, check_metrics
from ssmlbench.runs.scores import StoredScores


class Unavailable(Exception):
    """A value that a run did not store and that cannot be computed; the text is the reason."""


def metric_value(run: Finished, key: str, decision: str, convention: str) -> float:
    """The value of a metric of a run; raises `Unavailable` where there is none."""
    metric = METRICS[key]
    value = _find(run.result["metrics"], metric, decision, convention)
    if value is None:
        value = _find(_computed(run), metric, decision, convention)
    if value is None:
        raise Unavailable(
            run.computed.reason
            or f"the decision rule {decision} is fitted while a run is made, and the run is older than "
            "the rule; delete its folder and run it again"
        )
    return value


def _find(values: MetricValues, metric: Metric, decision: str, convention: str) -> float | None:
    """A stored value. A metric that reads no label sets has the same one under every rule."""
    rules = (decision,) if metric.uses_decision else (decision, *values)
    for rule in rules:
        try:
            return float(values[rule][convention][metric.key])
        except KeyError:
            continue
    return None


def _computed(run: Finished) -> MetricValues:
    """The metrics that the run's result lacks; computed once, then read from computed.json."""
    if run.computed.metrics is None:
        run.computed.metrics = {}
        if run.diverged:
            run.computed.reason = "the trial diverged"
        elif run.spec.judged_on == "nothing":
            run.computed.reason = "the run learnt from every labelled row and was judged on none"
        elif (kept := _read_stored(run)) is not None:
            run.computed.metrics = kept
        else:
            _compute(run)
    return run.computed.metrics


def _read_stored(run: Finished) -> MetricValues | None:
    """The values in computed.json, if they are of this result and of today's metrics and rules."""
    kept = read_json(RunFolder(run.folder).computed_file)
    if kept is None or kept.get("for") != _written_for(run):
        return None
    try:
        return check_metrics(kept.get("metrics"))
    except SchemaError:
        return None


def _compute(run: Finished) -> None:
    try:
        stored = StoredScores.read(run.folder)
        values = evaluate_rules(stored.scores, stored.truth, stored.parameters)
    except FileNotFoundError:
        run.computed.reason = (
            "the result does not have it, and there is no scores.safetensors to compute it from"
        )
        return
    except (OSError, ValueError) as error:
        if is_passing(error):
            raise
        run.computed.reason = f"its scores cannot be read: {error}"
        return
    run.computed.metrics = values
    kept = {"version": 1, "for": _written_for(run), "metrics": values}
    with suppress(OSError):  # a folder that cannot be written to: computed again next time
        write_json(RunFolder(run.folder).computed_file, kept)


def _written_for(run: Finished) -> list[str]:
    """The key of computed values: the run, its result, and the definitions of metrics and rules."""
    return [
        run.spec.hash,
        run.finished_at,
        _definitions(tuple(METRICS.values()), tuple(RULES.values())),
    ]


@functools.cache
def _definitions(entries: tuple[Metric, ...], rules: tuple[DecisionRule, ...]) -> str:
    """A digest of the tables' entries and of the files that define them; an edit changes it."""
    names = [entry.key for entry in entries] + [rule.name for rule in rules]
    functions: list[Callable[..., Any] | None] = [entry.value for entry in entries]
    functions += [function for rule in rules for function in (rule.decide, rule.fit)]
    modules = {inspect.getmodule(function) for function in functions if function is not None}
    digest = hashlib.sha256(json.dumps(names).encode())
    for source in sorted({_source(module) for module in {*modules, metrics, decisions, matrices}}):
        digest.update(source.encode())
    return digest.hexdigest()[:12]


def _source(module: Any) -> str:
    try:
        return inspect.getsource(module)
    except (OSError, TypeError):  # no source file, e.g. typed at a prompt
        return str(module)
