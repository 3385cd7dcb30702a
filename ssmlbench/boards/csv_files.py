"""Writes finished runs to one CSV file per data set, with their provenance, and reads such files back.

One row per run: its metrics under every rule, its cost, its versions, its whole spec. The same runs give
the same bytes, on any machine and any day.
"""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ssmlbench.boards.board import unlike_published
from ssmlbench.boards.versions import Versions
from ssmlbench.core.csv_cells import CsvWriter, cell_text, check_other_table
from ssmlbench.core.errors import UserError, plain_reason
from ssmlbench.core.files import write_output
from ssmlbench.core.plain_files import plain_text
from ssmlbench.core.plain_text import one_line
from ssmlbench.core.whole_numbers import whole_number
from ssmlbench.protocol.decisions import RULES
from ssmlbench.protocol.metrics import CONVENTIONS, METRICS
from ssmlbench.runs.finished import Finished
from ssmlbench.runs.metric_values import Unavailable, metric_value
from ssmlbench.runs.schema import COST_FIELDS, MetricValues, SchemaError, parse_result

READABLE = ("run", "method", "regime", "level", "seed")
RECOGNISED = {"run", "spec"}
"""The columns by which an exported file is recognised."""
MADE_WITH = (
    *("ssmlbench", "torch", "python", "device", "cpu_kernels", "precision", "threads"),
    "finished",
)


def metric_columns() -> dict[str, list[tuple[str, str, str]]]:
    """Column → the keys of its number in a result's metrics; a metric without a rule has one column."""
    columns: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for convention in CONVENTIONS:
        for metric in METRICS.values():
            for decision in RULES:
                rule = f"{decision}." if metric.uses_decision else ""
                columns[f"{rule}{convention}.{metric.key}"].append(
                    (decision, convention, metric.key)
                )
    return dict(columns)


def export(
    runs: Iterable[Finished], folder: Path, command: str, versions: Versions | None = None
) -> list[Path]:
    """Write folder/<data set>.csv for every data set of the runs.

    versions: of all runs that were read; by default, of the runs that are written.
    """
    runs = list(runs)
    versions = versions or Versions.of(runs)
    by_dataset: dict[str, list[Finished]] = defaultdict(list)
    for run in runs:
        by_dataset[run.spec.dataset].append(run)
    files = {folder / f"{dataset}.csv": by_dataset[dataset] for dataset in sorted(by_dataset)}
    try:
        for file in files:
            check_other_table(file, RECOGNISED, "--export")
        folder.mkdir(parents=True, exist_ok=True)
        for file, members in files.items():
            write_output(file, exported_text(members, command, versions))
    except OSError as error:
        raise UserError(f"--export {folder}: {error.strerror or error}; name a folder") from None
    return list(files)


def exported_text(runs: Sequence[Finished], command: str, versions: Versions | None = None) -> str:
    """The runs as CSV, one line each, with the command that exported them on top."""
    versions = versions or Versions.of(runs)
    ordered = sorted(runs, key=_order)
    out = io.StringIO()
    for line in _provenance(ordered, command):
        out.write(f"# {one_line(line)}\n")
    columns = metric_columns()
    made_with = [f"made_with.{name}" for name in MADE_WITH]
    fields = [*READABLE, *columns, *(f"cost.{name}" for name in COST_FIELDS), *made_with]
    fields += ["code", "data", "unlike_published", "observation", "uses", "spec"]
    CsvWriter(out).records((_row(run, columns, versions) for run in ordered), fields)
    return out.getvalue()


def _order(run: Finished) -> tuple[Any, ...]:
    spec = run.spec
    level = float(spec.level or 0)
    return spec.regime, level, spec.method, spec.variant, spec.seed, _run_hash(run)


def _run_hash(run: Finished) -> str:
    return str(run.result.get("hash", run.spec.hash))


def _provenance(runs: Sequence[Finished], command: str) -> list[str]:
    """Lines on the provenance of all runs together; every row also has its own."""

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
        "a row: run is the hash of spec, method the row of a board (older code has @, a digest and a day), "
        "code the digest of the method's code, observation that of what was observed",
    ]


def _row(
    run: Finished, columns: Mapping[str, list[tuple[str, str, str]]], versions: Versions
) -> dict[str, Any]:
    spec, result = run.spec, run.result
    made_with = {**result.get("made_with", {}), "finished": run.finished_at}
    row = {
        "run": _run_hash(run),
        "method": versions.row_name(spec),
        "regime": spec.regime,
        "level": spec.level,
        "seed": spec.seed,
        "code": spec.code,
        "data": spec.data,
        "unlike_published": json.dumps(facts) if (facts := unlike_published(run)) else "",
        "observation": result.get("observation", ""),
        "uses": result.get("uses", ""),
        "spec": json.dumps(spec.portable(), sort_keys=True, separators=(",", ":")),
    }
    for column, keys in columns.items():
        row[column] = _metric_text(run, *keys[0])
    costs = result["cost"]
    row |= {f"cost.{n}": repr(float(costs[n])) if n in costs else "" for n in COST_FIELDS}
    return row | {f"made_with.{name}": made_with.get(name, "") for name in MADE_WITH}


def _metric_text(run: Finished, decision: str, convention: str, metric: str) -> str:
    """The value in full precision; empty where it is not available."""
    try:
        return repr(metric_value(run, metric, decision, convention))
    except Unavailable:
        return ""


def read_exported(files: Iterable[Path]) -> tuple[list[Finished], list[str]]:
    """The runs of exported files, and a line for every row that cannot be read.

    The files have no scores: a metric or rule that was added later is not available for their runs.
    """
    columns = metric_columns()
    runs: list[Finished] = []
    complaints = []
    for file in files:
        try:
            lines = list(plain_text(file))
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"--from {file}: cannot be read ({plain_reason(error)})") from None
        body = [line for line in lines if not line.startswith("#")]
        for cells in _records(body, file):
            row = {k: cell_text(v) for k, v in cells.items() if isinstance(v, str)}
            if absent := RECOGNISED - row.keys():
                raise UserError(
                    f"--from {file}: not a file of `ssmlbench compare --export`, it has no column "
                    f"{' and no column '.join(sorted(absent))}"
                )
            try:
                run = _from_row(row, columns, file)
            except SchemaError as error:
                complaints.append(f"{file}: run {row['run']} left out, {error}")
                continue
            runs.append(run)
    return runs, complaints


def _records(lines: list[str], file: Path) -> Iterator[dict[str, Any]]:
    try:
        yield from csv.DictReader(lines)
    except csv.Error as error:
        raise UserError(f"--from {file}: not a CSV file ({error})") from None


def _from_row(
    row: Mapping[str, str], columns: Mapping[str, list[tuple[str, str, str]]], file: Path
) -> Finished:
    try:
        metrics: MetricValues = {d: {c: {} for c in CONVENTIONS} for d in RULES}
        for column, keys in columns.items():
            for decision, convention, metric in keys:
                if text := row.get(column):  # empty or no such column: not available
                    metrics[decision][convention][metric] = float(text)
        costs = {name: float(text) for name in COST_FIELDS if (text := row.get(f"cost.{name}"))}
        spec = json.loads(row["spec"])
        unlike = json.loads(row.get("unlike_published") or "[]")
    except (ValueError, TypeError, RecursionError) as error:
        raise SchemaError(str(error)) from None
    made_with: dict[str, Any] = {
        name: text for name in MADE_WITH if (text := row.get(f"made_with.{name}"))
    }
    if "threads" in made_with:
        made_with["threads"] = whole_number(made_with["threads"])
    result = {
        "spec": spec,
        "hash": row["run"],
        "observation": row.get("observation", ""),
        "uses": row.get("uses", ""),
        "metrics": metrics,
        "cost": costs,
        "made_with": made_with,
        "data": {"unlike_published": unlike},
    }
    return Finished(*parse_result(result), file.with_suffix(""))
