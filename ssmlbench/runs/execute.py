"""Executes one run: the judge opens the true labels, training hands in scores, result.json comes last."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ssmlbench.core.counts import first_of
from ssmlbench.core.errors import (
    Diverged,
    RunFailed,
    RunStopped,
    UserError,
    disk_error,
)
from ssmlbench.core.events import AlreadyDone, Done, Notify, Started, Waiting, Warned
from ssmlbench.core.files import discard, write_json
from ssmlbench.core.locks import Lock
from ssmlbench.core.plain_text import error_text
from ssmlbench.core.plain_warnings import show_plainly
from ssmlbench.core.sealed_files import LABELS
from ssmlbench.core.spec import RunSpec
from ssmlbench.data import Task, prepare_whole
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol import metrics
from ssmlbench.protocol.judge import Judge
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.heartbeat import Heartbeat
from ssmlbench.runs.judgements import StoredJudge
from ssmlbench.runs.model_card import write_model_card
from ssmlbench.runs.result import write_diverged_trial, write_result
from ssmlbench.runs.schema import Result
from ssmlbench.runs.train import NOT_WANTED, Assignment, TrainingReport, train_run
from ssmlbench.training.checkpoint import Checkpoint
from ssmlbench.training.evaluation import Outcome

Train = Callable[[Assignment, Judge, Notify], TrainingReport]
"""Trains, in this process or in another one, and returns when the judge has all scores."""
NOT_SEALED = "made in the process that gave the class: the labels were not sealed from it"


def execute(
    spec: RunSpec, plugins: Plugins, context: RunContext, notify: Notify = lambda e: None
) -> Done | AlreadyDone:
    """Make a run in this process, judge and training together, unless it is finished.

    `ssmlbench run` makes runs in sealed processes instead: see sealed_run.py.
    """

    def train(assignment: Assignment, judge: Judge, notify: Notify) -> TrainingReport:
        if context.gpus > 1:
            raise UserError(
                "--gpus: a class given in memory trains on one device; put it into a file"
            )
        if plugins.in_memory:
            judge.note(NOT_SEALED)
        return train_run(assignment, plugins, judge, notify)

    return judge_run(spec, lambda: open_task(spec, plugins), context, train, notify)


def judge_run(
    spec: RunSpec,
    open_data: Callable[[], Task],
    context: RunContext,
    train: Train,
    notify: Notify,
) -> Done | AlreadyDone:
    """Make a run unless it is finished; wait if another process is making the same run.

    train: trains in this process or in another one.
    """
    folder = RunFolder.of(context.results, spec)
    if folder.finished:
        return AlreadyDone()
    try:
        with folder.claim(lambda: notify(Waiting("another process makes it"))) as lock:
            if folder.finished:
                return AlreadyDone()
            notify(Started())
            result = _make_claimed(spec, open_data, context, folder, lock, train, notify)
    except (UserError, RunFailed):
        raise
    except OSError as error:
        raise RunFailed(disk_error(error) or f"{type(error).__name__}: {error}") from error
    except Exception as error:
        raise RunFailed(f"{type(error).__name__}: {error_text(error)}") from error
    judged = result["metrics"].get("threshold", {}).get("default", {})
    return Done(judged.get("map"), result["cost"]["seconds"])


def _make_claimed(
    spec: RunSpec,
    open_data: Callable[[], Task],
    context: RunContext,
    folder: RunFolder,
    lock: Lock,
    train: Train,
    notify: Notify,
) -> Result:
    """Make a run whose lock is held; if it fails, nothing is left that looks like a result."""
    if damage := folder.damage():
        notify(Warned(f"{damage}; the run is repeated"))
    folder.drop_leftovers()
    before = folder.result_stamp()

    def train_alone(assignment: Assignment, judge: Judge, notify: Notify) -> TrainingReport:
        report = train(assignment, judge, notify)
        if lock.lost:  # scores hold test labels, and another process may train here
            raise RunStopped(
                "its lock was deleted while it trained, so that another process may make it too"
            )
        folder.drop_leftovers()
        write_json(folder.spec_file, spec.as_dict())
        return report

    try:
        write_json(folder.spec_file, spec.as_dict())
        with Heartbeat(folder, spec.epochs, notify) as heartbeat:
            result = _make_run(spec, open_data(), context, folder, train_alone, heartbeat.notify)
    except Exception:
        folder.drop_result_since(before)  # a plugin may have forged one
        if not folder.finished and not folder.checkpoint_file.exists():
            discard(folder.spec_file)
        raise
    _discard_leftovers(folder.error_file, folder.repeat_file)
    return result


def _make_run(
    spec: RunSpec,
    task: Task,
    context: RunContext,
    folder: RunFolder,
    train: Train,
    notify: Notify,
) -> Result:
    """Open the judge, train, and write the model and the result."""
    checkpoint = Checkpoint(folder.checkpoint_file, spec.hash)
    judged = Checkpoint(folder.judgements_file, spec.hash, shared_folder=True)
    judge = StoredJudge.open(spec, task, judged)
    data_notes = [] if spec.judged_on == "held-out" else _data_notes(task, judge)
    for note in data_notes:
        notify(Warned(note, of_data=True))
    assignment = Assignment(
        spec=spec,
        context=context,
        task_folder=task.folder,
        card=task.card.for_training(),
        observation=judge.visible(),
        judged_epochs=judge.judgements.epochs,
        checkpoint_file=folder.checkpoint_file,
        model_file=folder.weights_file,
    )
    try:
        report = train(assignment, judge, notify)
        judge.check_complete()
    except RunStopped:
        raise
    except RunFailed as error:
        checkpoint.delete()  # a run that continued from it would fail again
        judge.file.delete()
        if not (spec.judged_on == "held-out" and isinstance(error, Diverged)):
            raise
        result = write_diverged_trial(spec, folder, str(error))
        notify(Warned(str(error)))
        return result
    for note in judge.notes:
        notify(Warned(note))
    outcome = Outcome.of(report.trained, judge.judgements)
    if report.model_declined:
        _drop_model(folder, report.model_declined, notify)
    else:
        write_model_card(spec, folder, task, outcome)
    notes = [*data_notes, *outcome.notes, *judge.notes]
    result = write_result(spec, folder, task, judge, outcome, report, notes, context)
    _discard_leftovers(checkpoint.file, judge.file.file)
    return result


def _discard_leftovers(*files: Path) -> None:
    """Delete files that a finished run no longer needs.

    It stays finished if that fails: nobody reads them, and `ssmlbench doctor` deletes them.
    """
    for file in files:
        with suppress(OSError):
            discard(file)


def _drop_model(folder: RunFolder, reason: str, notify: Notify) -> None:
    """Delete the files of a model that is not kept: they may be there from an earlier attempt."""
    discard(folder.weights_file)
    discard(folder.model_file)
    if reason != NOT_WANTED:
        notify(Warned(f"its model is not kept: {reason}"))


def _data_notes(task: Task, judge: Judge) -> list[str]:
    """Warnings about the run's data, a line each."""
    names = task.card.label_names
    notes = []
    if skipped := sum(task.card.skipped.values()):
        notes.append(f"{skipped:,} bad rows of {task.card.name} were left out when it was prepared")
    if any(file.stat().st_nlink > 1 for file in (task.folder / LABELS).glob("*")):
        notes.append(
            f"the label files of {task.card.name} have other names on this disk (hard links), under "
            "which they are not sealed"
        )
    if len(missing := judge.observation.labels_without_positive):
        where = "from these labels" if judge.spec.regime == "given" else "at this seed and π"
        listed = first_of([names[k] for k in missing], 5)
        notes.append(
            f"{len(missing)} of {len(names)} labels have no labelled positive ({listed}); nothing "
            f"can be learnt of them {where}"
        )
    if len(judge.judged_truth) and (empty := metrics.empty_labels(judge.judged_truth)):
        kind = "held-out" if judge.spec.folds else "test"
        notes.append(
            f"{empty} of {len(names)} labels have no {kind} positive: left out of mAP and Macro-F1"
        )
    return notes


def open_task(spec: RunSpec, plugins: Plugins) -> Task:
    """The whole prepared data set of a spec; a UserError if it has changed since the spec was resolved."""
    return check_data(spec, prepare_whole(plugins.datasets[spec.dataset]()))


def check_data(spec: RunSpec, task: Task) -> Task:
    """The task; a UserError if it has changed since the spec was resolved."""
    if task.card.fingerprint != spec.data:
        raise UserError(
            f"data set {spec.dataset} was prepared again since this run was planned; give the same "
            "command again"
        )
    return task


def quieten() -> None:
    """Silence torch's own warnings, which are not about the user's run; show ours on one line."""
    show_plainly()
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
