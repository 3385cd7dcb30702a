"""Which finished run is meant: by its hash or folder, or the best one of a data set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from ssmlbench.core.errors import UserError
from ssmlbench.protocol.metrics import METRICS
from ssmlbench.runs.finished import Finished, read_finished
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.metric_values import Unavailable, metric_value


def run_folder(named: str, results: Iterable[Path]) -> Path:
    """The folder of a run that is named by its path, its hash, or the start of its hash."""
    path = Path(named).expanduser()
    if (path / "result.json").is_file():
        return path
    runs, _ = read_finished([root for root in results if root.is_dir()])
    found = sorted({run.folder for run in runs if run.spec.hash.startswith(named)})
    if len(found) == 1:
        return found[0]
    looked = ", ".join(map(str, results))
    if not found:
        raise UserError(
            f"--run {named}: no finished run of that hash in {looked}; `ssmlbench runs` lists them, "
            "--results names another folder, and the path of a run's folder works too"
        )
    raise UserError(f"--run {named}: {len(found)} runs start with that; type more of the hash")


def best_run(
    runs: Sequence[Finished], dataset: str | None, metric: str, decision: str
) -> tuple[Finished, str]:
    """The run to use of the row with the best mean, among runs that keep a model; and why it.

    Of that row's runs: the one that learnt from every labelled row, if there is one, else that of
    the first seed. The seed with the best score would be a choice by luck.
    """
    usable = [run for run in runs if RunFolder(run.folder).model_file.is_file()]
    usable = [run for run in usable if dataset is None or run.spec.dataset == dataset]
    names = sorted({run.spec.dataset for run in usable})
    if not usable:
        where = f" of data set {dataset}" if dataset else ""
        raise UserError(f"--best: no finished run{where} keeps a model; run it with --keep-model")
    if len(names) > 1:
        raise UserError(f"--best: name one data set with --dataset: {', '.join(names)}")
    rows: dict[tuple[str, str], list[Finished]] = defaultdict(list)
    for run in usable:
        rows[run.spec.variant, run.spec.regime_label].append(run)
    means = {row: _mean(members, metric, decision) for row, members in rows.items()}
    judged = {row: mean for row, mean in means.items() if mean is not None}
    if not judged:
        chosen = usable[0]
        return chosen, f"{chosen.spec.variant}: the only one, judged on nothing"
    sign = 1 if METRICS[metric].higher_is_better else -1
    row = max(judged, key=lambda name: (sign * judged[name], name))
    members = sorted(rows[row], key=lambda run: (run.spec.judged_on != "nothing", run.spec.seed))
    reason = f"{row[0]} ({row[1]}), mean {METRICS[metric].title} {judged[row]:.4f}"
    return members[0], reason


def _mean(runs: Sequence[Finished], metric: str, decision: str) -> float | None:
    values = []
    for run in runs:
        try:
            values.append(metric_value(run, metric, decision, "default"))
        except Unavailable:
            continue
    return sum(values) / len(values) if values else None
