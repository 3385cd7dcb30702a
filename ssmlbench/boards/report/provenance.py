"""The provenance of a report's numbers: versions, data fingerprints, method files, every run's hash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ssmlbench.runs.finished import Finished


@dataclass(frozen=True)
class Listing:
    """One table of the provenance section."""

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def listings(runs: Sequence[Finished]) -> list[Listing]:
    """Return the tables of versions, data sets, method files and runs."""
    return [_versions(runs), _data(runs), _methods(runs), _runs(runs)]


def _counted(caption: str, headers: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Listing:
    """Equal rows once, with the number of runs that have them."""
    counts = Counter(rows)
    body = tuple((*row, str(counts[row])) for row in sorted(counts))
    return Listing(caption, (*headers, "runs"), body)


def _versions(runs: Sequence[Finished]) -> Listing:
    keys = ("ssmlbench", "torch", "python", "device", "cpu_kernels", "precision", "threads")
    made = [run.result.get("made_with", {}) for run in runs]
    return _counted(
        "Versions and devices", keys, [tuple(str(m.get(key, "–")) for key in keys) for m in made]
    )


def _data(runs: Sequence[Finished]) -> Listing:
    rows = []
    for run in runs:
        data = run.result.get("data", {})
        sizes = data.get("rows", {})
        shown = ", ".join(f"{split} {count}" for split, count in sorted(sizes.items())) or "–"
        rows.append((run.spec.dataset, run.spec.data, shown, str(data.get("labels", "–"))))
    return _counted("Data sets", ("data set", "fingerprint", "rows", "labels"), rows)


def _methods(runs: Sequence[Finished]) -> Listing:
    return _counted(
        "Method files",
        ("method", "digest of its file", "protocol"),
        [(run.spec.method, run.spec.code, str(run.spec.protocol)) for run in runs],
    )


def _runs(runs: Sequence[Finished]) -> Listing:
    headers = ("method", "data set", "regime", "seed", "run", "observed labels", "steps", "epoch")
    rows = sorted(
        (
            run.spec.variant,
            run.spec.dataset,
            run.spec.regime_label,
            str(run.spec.seed),
            run.spec.hash,
            str(run.result.get("observation", "–")),
            str(run.result.get("steps", "–")),
            str(run.result.get("selected_epoch", "–")),
        )
        for run in runs
    )
    return Listing("Runs", headers, tuple(rows))
