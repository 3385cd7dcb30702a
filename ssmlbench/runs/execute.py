"""One run from its spec to its folder: data, observation, inputs, training, result.json last."""

from __future__ import annotations

import json
import warnings

import numpy as np
import torch

from ssmlbench.core.errors import Diverged, RunFailed, UserError
from ssmlbench.core.events import (
    AlreadyDone,
    Done,
    Notify,
    Started,
    TrainingStarted,
    Waiting,
    Warned,
)
from ssmlbench.core.files import write_atomically
from ssmlbench.core.seeds import stream, stream_seed
from ssmlbench.core.spec import RunSpec
from ssmlbench.data import Task, prepare
from ssmlbench.inputs.encoders import Encoder, Vector, find_encoder, load_encoder
from ssmlbench.inputs.loader import SplitLoader
from ssmlbench.kit.estimator import Estimator
from ssmlbench.kit.method import Method
from ssmlbench.plugins.digest import code_digest, encoder_code
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.heartbeat import Heartbeat
from ssmlbench.runs.result import write_diverged_trial, write_result
from ssmlbench.runs.schema import Result
from ssmlbench.training.checkpoint import Checkpoint
from ssmlbench.training.device import make_repeatable, pick_device
from ssmlbench.training.estimation import estimator_seed, run_estimator
from ssmlbench.training.run_data import RunData, build_run_data
from ssmlbench.training.trainer import Trainer, TrainingContext


def execute(
    spec: RunSpec, plugins: Plugins, context: RunContext, notify: Notify = lambda e: None
) -> Done | AlreadyDone:
    """Make a run unless its result is there.

    If another process is making the same run, wait for it.
    """
    folder = RunFolder.of(context.results, spec)
    if folder.finished:
        return AlreadyDone()
    try:
        with folder.claim(lambda: notify(Waiting("another process makes it"))):
            if folder.finished:
                return AlreadyDone()
            notify(Started())
            write_atomically(folder.spec_file, json.dumps(spec.as_dict(), indent=1))
            with Heartbeat(folder, spec.epochs, notify) as heartbeat:
                result = _make(spec, plugins, context, folder, heartbeat.notify)
            folder.error_file.unlink(missing_ok=True)
    except Exception as error:
        if not folder.finished and not folder.checkpoint_file.exists():
            folder.spec_file.unlink(missing_ok=True)
            folder.remove_if_empty(context.results)
        if isinstance(error, UserError | RunFailed):
            raise
        raise RunFailed(f"{type(error).__name__}: {error}") from error
    mean_average_precision = result["metrics"]["threshold"]["default"]["map"]
    return Done(mean_average_precision, result["cost"]["seconds"])


def _make(
    spec: RunSpec, plugins: Plugins, context: RunContext, folder: RunFolder, notify: Notify
) -> Result:
    """Walk a run's whole data path: task, observation and inputs, trainer, outcome, result."""
    encoder = encoder_class(spec, plugins)
    check_code(spec, plugins.methods[spec.method], encoder)
    device = pick_device(context.device)
    make_repeatable(thread_count(spec, encoder, context))
    task = open_task(spec, plugins)
    loader = SplitLoader(spec, encoder, task, device, context.workers, notify)
    learner = build_learner(spec, plugins, task)
    unscaled = isinstance(learner, Estimator) and not learner.scaled
    run_data, notes = build_run_data(spec, task, loader.unscaled if unscaled else loader.load)
    for note in notes:
        notify(Warned(note))
    if isinstance(learner, Estimator):
        notify(TrainingStarted())
        outcome = run_estimator(spec, learner, run_data, notify)
        here = torch.device("cpu")
        return write_result(spec, folder, task, run_data, outcome, here, notes, learner.uses)
    trained_encoder = build_encoder(spec, encoder, run_data)
    checkpoint = Checkpoint(folder.checkpoint_file)
    training = TrainingContext(device, checkpoint, notify, context.workers)
    trainer = Trainer(spec, learner, trained_encoder, run_data, training)
    notify(TrainingStarted())
    try:
        outcome = trainer.train()
    except RunFailed as error:
        checkpoint.delete()  # a run that continued from it would fail again
        if not (spec.judged_on == "held-out" and isinstance(error, Diverged)):
            raise
        result = write_diverged_trial(spec, folder, str(error))
        notify(Warned(str(error)))
        return result
    result = write_result(spec, folder, task, run_data, outcome, device, notes, learner.uses)
    checkpoint.delete()
    return result


def encoder_class(spec: RunSpec, plugins: Plugins) -> type[Encoder]:
    """The encoder that the spec names, for the kind of data it names."""
    return find_encoder(plugins.encoders, spec.backbone, plugins.datasets[spec.dataset].kind)


def check_code(spec: RunSpec, method: type[Method | Estimator], encoder: type[Encoder]) -> None:
    """Raise a UserError if this process loaded other code than the run was planned with.

    A worker process loads plugin files itself: one that was edited meanwhile would be recorded, and
    its features cached, under the digest of the old code.
    """
    planned = {f"method {method.name}": spec.code, f"--backbone {encoder.name}": spec.encoder_code}
    loaded = (code_digest(method), encoder_code(encoder))
    for (name, then), now in zip(planned.items(), loaded, strict=True):
        if then != now:
            raise UserError(
                f"{name}: its code has changed since this run was planned ({then} then, {now} now); "
                "give the same command again"
            )


def threads_of(spec: RunSpec, plugins: Plugins, context: RunContext) -> int | None:
    """CPU threads of a run that is still to be made; None: its share of the cores is not known."""
    return thread_count(spec, encoder_class(spec, plugins), context)


def thread_count(spec: RunSpec, encoder: type[Encoder], context: RunContext) -> int | None:
    """CPU threads of a run. They change the last bits of a number.

    A small network therefore always has one, however many runs are made at the same time.
    """
    trained = Vector if spec.freeze else encoder
    return context.threads or trained.threads or context.cores


def open_task(spec: RunSpec, plugins: Plugins) -> Task:
    """The prepared data set of a spec, which must still be the one that the spec was planned on."""
    task = prepare(plugins.datasets[spec.dataset]())
    if task.card.fingerprint != spec.data:
        raise UserError(
            f"data set {spec.dataset} was prepared again since this run was planned; give the same "
            "command again"
        )
    return task


def build_learner(spec: RunSpec, plugins: Plugins, task: Task) -> Method | Estimator:
    """The spec's method or estimator, with its hyper-parameters."""
    cls = plugins.methods[spec.method]
    if issubclass(cls, Estimator):
        return cls(cls.Config(**spec.config), task.label_count, estimator_seed(spec))
    torch.manual_seed(stream_seed(spec.seed, "method"))
    return cls(cls.Config(**spec.config), task.label_count)


def build_encoder(spec: RunSpec, encoder: type[Encoder], run_data: RunData) -> Encoder:
    """The encoder that is trained. Cached features are trained on as they are."""
    rows = np.zeros(1, dtype=np.int64)
    example = run_data.train.view(rows, "plain", stream(spec.seed, "example"))[0]
    if spec.freeze:
        return Vector(example)
    torch.manual_seed(stream_seed(spec.seed, "network"))
    return load_encoder(encoder, spec, example)


def quieten() -> None:
    """Silence torch's own warnings: they say nothing about the user's run."""
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
