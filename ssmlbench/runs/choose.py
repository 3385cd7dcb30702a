"""Finds the finished run that a user names by its hash or folder, or the best run of a data set."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from ssmlbench.core.commands import suggested
from ssmlbench.core.counts import first_of
from ssmlbench.core.errors import UserError
from ssmlbench.core.paths import from_home
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.protocol.metrics import METRICS
from ssmlbench.runs.finished import Finished, read_finished
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.metric_values import Unavailable, metric_value


def run_folder(named: str, results: Sequence[Path]) -> Path:
    """The folder of a finished run that is named by its path, its id, or the start of its id."""
    if (path := from_home(named) / "result.json").is_file():
        return path.parent
    runs, _ = read_finished([root for root in results if root.is_dir()])
    return named_run(named, ((run.spec.hash, run.folder) for run in runs), results, "finished run")


def named_run(
    named: str, runs: Iterable[tuple[str, Path]], results: Sequence[Path], kind: str = "run"
) -> Path:
    """The folder of the run that a text names. runs: ids and folders to choose from."""
    path = from_home(named)
    known = sorted({(hash_, folder) for hash_, folder in runs})
    folders = [folder for _, folder in known if named and folder == path] or [
        folder for hash_, folder in known if named and hash_.startswith(named)
    ]
    if len(folders) == 1:
        return folders[0]
    shown = suggested("runs", "list", results=results)
    if not folders:
        raise UserError(
            f"run {named}: no {kind} in {', '.join(map(str, results))} has an id like it; `{shown}` shows "
            "the ids, --results names another folder, and the path of a run's folder works too"
        )
    paths = first_of([str(folder) for folder in folders], 3)
    raise UserError(
        f"run {named}: {len(folders)} runs have ids that start with it; type more of the id (`{shown}` "
        f"shows the ids), or the path of one: {paths}"
    )


def best_run(
    runs: Sequence[Finished], dataset: str | None, metric: str, decision: str
) -> tuple[Finished, str]:
    """The best run that has a model, and the reason for the choice.

    It is a run of the row with the best mean: the one that learnt from every labelled row, if there is
    one, else that of the first seed. Choosing the seed with the best score would be choosing by luck.
    """
    usable = [run for run in runs if RunFolder(run.folder).model_file.is_file()]
    usable = [run for run in usable if dataset is None or run.spec.dataset == dataset]
    names = sorted({run.spec.dataset for run in usable})
    if not usable:
        made = sorted({run.spec.dataset for run in runs})
        if dataset is not None and dataset not in made:
            raise UserError(
                f"--best: no finished run of data set {dataset}.{did_you_mean(dataset, made)}"
            )
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
            value = metric_value(run, metric, decision, "default")
        except Unavailable:
            continue
        if not math.isnan(value):
            values.append(value)
    return sum(values) / len(values) if values else None
