"""Runs from several places as one list in which each run counts once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from ssmlbench.core.errors import UserError
from ssmlbench.runs.finished import Finished
from ssmlbench.runs.schema import metric_entries


def merge_runs(runs: Iterable[Finished], prefer: Path | None = None) -> list[Finished]:
    """Each run once, by its hash; a run with different numbers in two places is an error.

    prefer: the results folder, or the file of exported runs, whose numbers count in that case. A
    UserError if no run was read from there.
    """
    runs = list(runs)
    if prefer is not None and runs and not any(_is_below(run, prefer) for run in runs):
        raise UserError(
            f"--prefer {prefer}: no run was read from there; name a --results or --from"
        )
    by_hash: dict[str, Finished] = {}
    conflicts: list[tuple[Finished, Finished]] = []
    for run in runs:
        key = str(run.result.get("hash") or run.spec.hash)
        known = by_hash.setdefault(key, run)
        if known is run or not _difference(known, run):
            continue
        if prefer is not None and _is_below(run, prefer) != _is_below(known, prefer):
            by_hash[key] = run if _is_below(run, prefer) else known
        else:
            conflicts.append((known, run))
    if conflicts:
        raise _conflict(conflicts)
    return list(by_hash.values())


def _difference(one: Finished, other: Finished) -> str:
    """The first metric in which two results of one run differ, with both values; empty if none."""
    theirs = dict(metric_entries(other.result["metrics"]))
    for key, value in metric_entries(one.result["metrics"]):
        if key in theirs and value != theirs[key] and not _both_nan(value, theirs[key]):
            return f"{key[2]} {value:.6g} in {one.folder}, {theirs[key]:.6g} in {other.folder}"
    return ""


MACHINES = {
    "torch": "torch",
    "device": "device",
    "cpu_kernels": "CPU kernels",
    "threads": "number of threads",
}
"""Fields of `made_with` that may change the last bits, and what they are called in messages."""


def _reason(one: Finished, other: Finished) -> str:
    """How the machines differed that made two results of one run, as far as they say; may be empty."""
    ours, theirs = (run.result.get("made_with", {}) for run in (one, other))
    for field, name in MACHINES.items():
        here, there = (str(made.get(field) or "") for made in (ours, theirs))
        if here and there and here != there:
            return f"; their {name} differed: {here}, and {there}"
    return ""


def _both_nan(one: float, other: float) -> bool:
    return math.isnan(one) and math.isnan(other)


def _is_below(run: Finished, place: Path) -> bool:
    """Whether a run was read from a results folder or a file of exported runs."""
    folder = run.folder.resolve()
    return folder.is_relative_to(place.resolve()) or folder == place.resolve().with_suffix("")


def _conflict(conflicts: list[tuple[Finished, Finished]]) -> UserError:
    one, other = conflicts[0]
    count = len(conflicts)
    runs = "1 run has" if count == 1 else f"{count} runs have"
    return UserError(
        f"{runs} different numbers in two places, e.g. {one.spec} ({_difference(one, other)}"
        f"{_reason(one, other)}); leave one place out, "
        "or name the folder or file that counts: --prefer PATH"
    )
