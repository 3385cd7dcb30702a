"""Writes the files of a finished run: scores, history, and last result.json, which marks it finished."""

from __future__ import annotations

import platform
from datetime import UTC, datetime

import torch

import ssmlbench
from ssmlbench.core.checksums import file_facts
from ssmlbench.core.csv_cells import spreadsheet_cell
from ssmlbench.core.files import write_atomically, write_json
from ssmlbench.core.spec import RunSpec
from ssmlbench.data import Task
from ssmlbench.protocol.judge import Judge, judged_rows, rows_from_train
from ssmlbench.protocol.metrics import empty_labels, evaluate_rules
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.diagnostics import SAMPLE_FILE, Diagnostics
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.per_label import results_per_label
from ssmlbench.runs.schema import RESULT_VERSION, MadeWith, Result
from ssmlbench.runs.scores import StoredScores
from ssmlbench.runs.train import TrainingReport
from ssmlbench.training.evaluation import Outcome
from ssmlbench.training.repeatable import cpu_kernels


def write_result(
    spec: RunSpec,
    folder: RunFolder,
    task: Task,
    judge: Judge,
    outcome: Outcome,
    report: TrainingReport,
    notes: list[str],
    context: RunContext,
) -> Result:
    """Write scores and history, and result.json last: with it, the run is finished."""
    truth = judge.judged_truth == 1
    names = list(task.card.label_names)
    ids = judged_ids(spec, task, judge)
    stored = StoredScores(outcome.scores, truth, outcome.rule_parameters, names, ids)
    stored.write(folder.scores_file)
    diagnostics = {**judge.judgements.records.arrays(), **judge.label_counts()}
    if diagnostics:
        Diagnostics(diagnostics, names).write(folder.path)
    if context.keep_features and (sample := judge.last_sample()):
        Diagnostics(sample, names).write(folder.path, SAMPLE_FILE)
    cost = _write_history(folder, outcome)
    result: Result = {
        "version": RESULT_VERSION,
        "spec": spec.as_dict(),
        "hash": spec.hash,
        "observation": judge.observation.digest,
        "metrics": evaluate_rules(outcome.scores, truth, outcome.rule_parameters)
        if len(truth)
        else {},
        "selected_epoch": outcome.selected_epoch,
        "steps": outcome.steps,
        "uses": report.uses,
        "labels_without_test_positive": empty_labels(truth) if len(truth) else truth.shape[1],
        "notes": notes,
        "cost": cost,
        "made_with": _made_with(outcome, report),
        "data": {
            "rows": task.card.rows,
            "labels": task.label_count,
            "unlike_published": list(task.unlike_published),
        },
        "files": file_facts(folder.path, folder.written_files()),
    }
    if sources := context.sources.get(spec.dataset):
        result["sources"] = sources.as_dict()
    if len(truth):
        result["per_label"] = results_per_label(
            outcome.scores, truth, outcome.rule_parameters, names
        )
    write_json(folder.result_file, result)
    return result


def _write_history(folder: RunFolder, outcome: Outcome) -> dict[str, float]:
    """Write history.csv. Returns the `cost` of the result."""
    import pandas as pd

    history = pd.DataFrame(outcome.history)
    safe = history.rename(columns=spreadsheet_cell)  # a plugin chooses the names of its columns
    write_atomically(folder.history_file, safe.to_csv(index=False))
    semi = history[history.phase == "semi"] if (history.phase == "semi").any() else history
    return {
        "seconds": float(history.seconds.sum()),
        "seconds_per_epoch": float(semi.seconds.median()),
        "peak_memory_mb": float(history.peak_memory_mb.max()),
    }


def _made_with(outcome: Outcome, report: TrainingReport) -> MadeWith:
    made_with: MadeWith = {
        "ssmlbench": ssmlbench.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": report.device,
        "gpu": report.gpu,
        "cpu_kernels": cpu_kernels(),
        "precision": outcome.precision,
        "nondeterministic": report.nondeterministic,
        "threads": report.threads,
        "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
    if report.trained.micro_batch is not None:
        made_with["micro_batch"] = report.trained.micro_batch
    return made_with


def judged_ids(spec: RunSpec, task: Task, judge: Judge) -> list[str]:
    """The data set's id of each judged row."""
    if not rows_from_train(spec):
        return task.ids("test")
    ids = task.ids("train")
    return [ids[row] for row in judged_rows(spec, judge.observation)]


def write_diverged_trial(spec: RunSpec, folder: RunFolder, reason: str) -> Result:
    """Record a trial that diverged: it is finished, scores 0 and is not tried again."""
    result: Result = {
        "version": RESULT_VERSION,
        "spec": spec.as_dict(),
        "hash": spec.hash,
        "metrics": {"threshold": {"default": {"map": 0.0}}},
        "diverged": reason,
        "cost": {"seconds": 0.0},
    }
    write_json(folder.result_file, result)
    return result
