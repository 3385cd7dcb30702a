"""Finished runs as one CSV a data set, with where they come from; and such a file read back.

One row a run: its metrics under every rule, its cost, its versions, its whole spec. The same runs give
the same bytes, on any machine and any day.
"""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ssmlbench.boards.leaderboard import level_of
from ssmlbench.core.errors import UserError
from ssmlbench.core.files import write_atomically
from ssmlbench.core.spec import RunSpec
from ssmlbench.protocol.decisions import RULES
from ssmlbench.protocol.metrics import CONVENTIONS, METRICS
from ssmlbench.runs.finished import Finished
from ssmlbench.runs.schema import COST_FIELDS, MadeWith, Result, with_precision

READABLE = ("run", "method", "regime", "level", "seed")
MADE_WITH = ("ssmlbench", "torch", "python", "device", "precision", "threads", "finished")


def metric_columns() -> dict[str, list[tuple[str, str, str]]]:
    """Column → where its number is in a result's metrics; what needs no rule stands there once."""
    columns: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for convention in CONVENTIONS:
        for metric in METRICS.values():
            for decision in RULES:
                rule = f"{decision}." if metric.uses_decision else ""
                columns[f"{rule}{convention}.{metric.key}"].append(
                    (decision, convention, metric.key)
                )
    return dict(columns)


def export(runs: Iterable[Finished], folder: Path, command: str) -> list[Path]:
    """Write folder/<data set>.csv for every data set of the runs."""
    by_dataset: dict[str, list[Finished]] = defaultdict(list)
    for run in runs:
        by_dataset[run.spec.dataset].append(run)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for dataset, members in sorted(by_dataset.items()):
            file = folder / f"{dataset}.csv"
            write_atomically(file, exported_text(members, command))
            written.append(file)
    except OSError as error:
        raise UserError(f"--export {folder}: {error.strerror or error}; name a folder") from None
    return written


def exported_text(runs: Sequence[Finished], command: str) -> str:
    ordered = sorted(runs, key=_order)
    out = io.StringIO()
    for line in _provenance(ordered, command):
        out.write(f"# {line}\n")
    columns = metric_columns()
    made_with = [f"made_with.{name}" for name in MADE_WITH]
    fields = [*READABLE, *columns, *(f"cost.{name}" for name in COST_FIELDS), *made_with]
    fields += ["code", "data", "observation", "spec"]
    writer = csv.DictWriter(out, fields, lineterminator="\n")
    writer.writeheader()
    for run in ordered:
        writer.writerow(_row(run, columns))
    return out.getvalue()


def _order(run: Finished) -> tuple[Any, ...]:
    spec = run.spec
    level = float(level_of(spec) or 0)
    return spec.regime, level, spec.method, spec.variant, spec.seed, _run_hash(run)


def _run_hash(run: Finished) -> str:
    return str(run.result.get("hash", run.spec.hash))


def _provenance(runs: Sequence[Finished], command: str) -> list[str]:
    """What the runs have in common, for a reader; every row has its own as well."""

    def values(name: str) -> str:
        return ", ".join(sorted({str(run.result.get("made_with", {}).get(name)) for run in runs}))

    days = sorted(run.finished_at[:10] for run in runs)
    return [
        f"{runs[0].spec.dataset}: {len(runs)} finished runs, {days[0]} to {days[-1]}",
        f"written by: {command}",
        f"shown by: ssmlbench compare --from {runs[0].spec.dataset}.csv",
        f"ssmlbench {values('ssmlbench')}, torch {values('torch')}, Python {values('python')}, on "
        f"{values('device')} ({values('precision')})",
        f"data fingerprint {', '.join(sorted({run.spec.data for run in runs}))}, protocol version "
        f"{', '.join(sorted({str(run.spec.protocol) for run in runs}))}",
        "a row: run is the hash of spec, code the digest of the method's file, observation that of what "
        "was observed",
    ]


def _row(run: Finished, columns: Mapping[str, list[tuple[str, str, str]]]) -> dict[str, Any]:
    spec, result = run.spec, run.result
    made_with = {**result.get("made_with", {}), "finished": run.finished_at}
    row = {
        "run": _run_hash(run),
        "method": spec.variant,
        "regime": spec.regime,
        "level": level_of(spec),
        "seed": spec.seed,
        "code": spec.code,
        "data": spec.data,
        "observation": result.get("observation", ""),
        "spec": json.dumps(spec.portable(), sort_keys=True, separators=(",", ":")),
    }
    for column, places in columns.items():
        decision, convention, metric = places[0]
        row[column] = repr(float(result["metrics"][decision][convention][metric]))
    row |= {f"cost.{name}": repr(float(result["cost"][name])) for name in COST_FIELDS}
    return row | {f"made_with.{name}": made_with.get(name, "") for name in MADE_WITH}


def read_exported(files: Iterable[Path]) -> list[Finished]:
    """The runs of exported files, as if read from their folders; their scores are not in them."""
    columns = metric_columns()
    runs: dict[str, Finished] = {}
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"--from {file}: cannot be read ({error})") from None
        body = [line for line in lines if not line.startswith("#")]
        for row in csv.DictReader(body):
            try:
                run = _from_row(row, columns, file)
            except (KeyError, ValueError, TypeError) as error:
                raise UserError(
                    f"--from {file}: not a file of `ssmlbench compare --export` "
                    f"({type(error).__name__}: {error})"
                ) from None
            runs.setdefault(row["run"], run)
    return list(runs.values())


def _from_row(
    row: Mapping[str, str], columns: Mapping[str, list[tuple[str, str, str]]], file: Path
) -> Finished:
    spec = json.loads(row["spec"])
    metrics: dict[str, Any] = {d: {c: {} for c in CONVENTIONS} for d in RULES}
    for column, places in columns.items():
        for decision, convention, metric in places:
            metrics[decision][convention][metric] = float(row[column])
    result: Result = {
        "spec": spec,
        "hash": row["run"],
        "observation": row["observation"],
        "metrics": metrics,
        "cost": {name: float(row[f"cost.{name}"]) for name in COST_FIELDS},
        "made_with": cast(MadeWith, {name: row[f"made_with.{name}"] for name in MADE_WITH}),
    }
    read = RunSpec.from_dict(with_precision(spec, result["made_with"]))
    return Finished(read, result, file.with_suffix(""))
