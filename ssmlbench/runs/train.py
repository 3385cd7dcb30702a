"""The training part of a run: it has the inputs and the observed labels, and hands scores to the judge.

There is no hidden or test label here; execute.py has the part that judges and stores.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ssmlbench.core.cpu import cores_of_job
from ssmlbench.core.errors import DISK_ERRORS, RunFailed, UserError
from ssmlbench.core.events import Notify, TrainingStarted, Warned
from ssmlbench.core.seeds import stream, stream_seed
from ssmlbench.core.spec import RunSpec
from ssmlbench.data import Card, Task
from ssmlbench.inputs.encoders import Encoder, Vector, find_encoder
from ssmlbench.inputs.encoders.tuning import load_tuned
from ssmlbench.inputs.loader import SplitLoader
from ssmlbench.kit.contract import build_method
from ssmlbench.kit.estimator import Estimator, Uses
from ssmlbench.kit.method import Method
from ssmlbench.plugins.digest import code_digest, encoder_code
from ssmlbench.plugins.loader import Plugins
from ssmlbench.plugins.source_lines import explain, passed_through
from ssmlbench.protocol.judge import JudgeInterface, rows_from_train
from ssmlbench.protocol.observation import Observation
from ssmlbench.runs.context import RunContext
from ssmlbench.training.checkpoint import Checkpoint
from ssmlbench.training.device import device_name, gpu_number, pick_device
from ssmlbench.training.estimation import estimator_seed, run_estimator
from ssmlbench.training.evaluation import Trained
from ssmlbench.training.model_file import MOST_BYTES, ModelFile
from ssmlbench.training.processes import Processes, SharedJudge
from ssmlbench.training.repeatable import (
    check_fast,
    make_repeatable,
    nondeterminism_text,
    record_nondeterminism,
)
from ssmlbench.training.run_data import RunData, load_run_data
from ssmlbench.training.saving import seconds_between_checkpoints
from ssmlbench.training.trainer import Trainer, TrainingContext

NOT_WANTED = "no model was wanted"


@dataclass(frozen=True)
class Assignment:
    """The input of training, apart from the plugins' code."""

    spec: RunSpec
    context: RunContext
    task_folder: Path
    card: Card
    observation: Observation
    judged_epochs: int  # a checkpoint with more epochs is not continued
    checkpoint_file: Path
    model_file: Path


@dataclass(frozen=True)
class TrainingReport:
    """The report at the end of training; the scores are with the judge."""

    trained: Trained
    device: str
    threads: int
    uses: Uses
    model_declined: str = ""  # why no model is kept
    nondeterministic: list[str] = field(default_factory=list)  # operations that may not repeat
    gpu: str = ""  # its number on the machine


def fill_caches(assignment: Assignment, plugins: Plugins, notify: Notify) -> None:
    """Compute the cached features and images of a run before the file of its method is imported.

    Other runs read them, and code of that file may change libraries. Views of patches, which few methods
    use, are computed when they are asked for.
    """
    spec, context = assignment.spec, assignment.context
    if spec.freeze and context.gpus > 1:
        return  # an error, which `_train` raises
    encoder = find_encoder(plugins.encoders, spec.backbone, assignment.card.kind)
    check_encoder_code(spec, encoder)
    device = torch.device("cpu")
    if spec.freeze:  # else no GPU is used here: the processes of a run are not yet forked
        device = pick_device(context.device)
        make_repeatable(thread_count(spec, encoder, context), device, spec.fast)
    loader = split_loader(assignment, encoder, device, worker_count(context, None), notify)
    with _mistakes_of(encoder):
        for split in ("train",) if rows_from_train(spec) else ("train", "test"):
            loader.fill_caches(split)


def split_loader(
    assignment: Assignment,
    encoder: type[Encoder],
    device: torch.device,
    workers: int,
    notify: Notify,
) -> SplitLoader:
    """The loader of a run's inputs. device: of the run, if no other one is named for encoding."""
    spec, context = assignment.spec, assignment.context
    task = Task(assignment.task_folder, assignment.card)
    named = context.encoding_device if spec.freeze else None
    encoding = pick_device(named) if named else device
    return SplitLoader(spec, encoder, task, encoding, workers, notify, context.decoded_cache)


def train_run(
    assignment: Assignment,
    plugins: Plugins,
    judge: JudgeInterface,
    notify: Notify,
    processes: Processes | None = None,
) -> TrainingReport:
    """Load the inputs, train, and hand scores and pseudo-labels to the judge.

    processes: those that share the run; None: only this one. A mistake of a plugin is a RunFailed of one
    line, which names the line of the plugin's file.
    """
    spec = assignment.spec
    encoder = find_encoder(plugins.encoders, spec.backbone, assignment.card.kind)
    with _mistakes_of(plugins.methods[spec.method], encoder):
        return _train(assignment, plugins, encoder, judge, notify, processes)


@contextmanager
def _mistakes_of(*classes: type[Any]) -> Iterator[None]:
    """Raise an error of a plugin's code as a RunFailed of one line, which names the line of its file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and (
            error.errno in DISK_ERRORS or not passed_through(error, *classes)
        ):
            raise
        failed = type(error) if isinstance(error, RunFailed) else RunFailed
        raise failed(explain(error, *classes)) from error


def _train(
    assignment: Assignment,
    plugins: Plugins,
    encoder: type[Encoder],
    judge: JudgeInterface,
    notify: Notify,
    processes: Processes | None,
) -> TrainingReport:
    spec, context = assignment.spec, assignment.context
    check_code(spec, plugins.methods[spec.method], encoder)
    device = pick_device(context.device)
    if processes is not None:
        device = processes.device(device)
        judge = SharedJudge(processes, judge, device)
    check_fast(device, spec.fast)
    make_repeatable(thread_count(spec, encoder, context), device, spec.fast)
    workers = worker_count(context, processes)
    loader = split_loader(assignment, encoder, device, workers, notify)
    learner = build_learner(spec, plugins, loader.task.label_count)
    unscaled = isinstance(learner, Estimator) and not learner.scaled
    load = loader.unscaled if unscaled else loader.load
    run_data = load_run_data(spec, assignment.observation, judge, load)
    run_data.judged_epochs = assignment.judged_epochs
    leads = processes is None or processes.leads
    model_file = _model_file(assignment, loader, scaled=not unscaled) if leads else None
    if isinstance(learner, Estimator):
        return _fit_estimator(spec, learner, run_data, model_file, notify)
    training = TrainingContext(
        device=device,
        checkpoint=Checkpoint(assignment.checkpoint_file, spec.hash),
        notify=notify,
        workers=workers,
        model_file=model_file,
        micro_batch=context.micro_batch,
        checkpoint_activations=context.checkpoint_activations,
        processes=processes,
        checkpoint_seconds=seconds_between_checkpoints(),
    )
    return _train_method(spec, learner, build_encoder(spec, encoder, run_data), run_data, training)


def _fit_estimator(
    spec: RunSpec,
    estimator: Estimator,
    run_data: RunData,
    model_file: ModelFile | None,
    notify: Notify,
) -> TrainingReport:
    threads = torch.get_num_threads()
    notify(TrainingStarted())
    trained = run_estimator(spec, estimator, run_data, notify)
    if model_file is not None:
        model_file.keep_estimator(estimator)
    return TrainingReport(trained, "cpu", threads, estimator.uses, _declined(model_file))


def _train_method(
    spec: RunSpec, method: Method, encoder: Encoder, run_data: RunData, training: TrainingContext
) -> TrainingReport:
    threads, device, processes = torch.get_num_threads(), training.device, training.processes
    trainer = Trainer(spec, method, encoder, run_data, training)
    training.notify(TrainingStarted())
    with record_nondeterminism(spec.fast) as nondeterministic:
        trained = trainer.train()
    if nondeterministic:
        training.notify(Warned(nondeterminism_text(nondeterministic)))
    name = device_name(device)
    return TrainingReport(
        trained=trained,
        device=name if processes is None else f"{processes.count} × {name}",
        threads=threads,
        uses=method.uses,
        model_declined=_declined(training.model_file),
        nondeterministic=nondeterministic,
        gpu=gpu_number(device),
    )


def _model_file(assignment: Assignment, loader: SplitLoader, scaled: bool) -> ModelFile | None:
    """The file of the model, with the encoder and scale of its inputs; None if none is wanted."""
    keep = assignment.context.keep_model
    if keep is False or assignment.spec.judged_on == "held-out":
        return None
    limit = None if keep else MOST_BYTES
    inputs = {"encoder": loader.encoder_state, "scale": loader.scale_state if scaled else {}}
    return ModelFile(Checkpoint(assignment.model_file, assignment.spec.hash), inputs, limit)


def _declined(model_file: ModelFile | None) -> str:
    return NOT_WANTED if model_file is None else model_file.declined


def encoder_class(spec: RunSpec, plugins: Plugins) -> type[Encoder]:
    """The encoder that the spec names, for the kind of data it names."""
    return find_encoder(plugins.encoders, spec.backbone, plugins.datasets[spec.dataset].kind)


def on_fixed_features(spec: RunSpec, plugins: Plugins) -> bool:
    """Whether no encoder is trained: the run learns from vectors, or from cached features."""
    return spec.freeze or encoder_class(spec, plugins) is Vector


def check_code(spec: RunSpec, method: type[Method | Estimator], encoder: type[Encoder]) -> None:
    """Raise a UserError if a plugin's code has changed since the spec was resolved.

    A worker process loads plugin files itself: results of an edited file would be stored under the digest
    of the old code.
    """
    _check_same(f"method {method.name}", spec.code, code_digest(method))
    check_encoder_code(spec, encoder)


def check_encoder_code(spec: RunSpec, encoder: type[Encoder]) -> None:
    """As `check_code`, for the encoder: so would cached features."""
    _check_same(f"--backbone {encoder.name}", spec.encoder_code, encoder_code(encoder))


def _check_same(name: str, planned: str, loaded: str) -> None:
    if planned != loaded:
        raise UserError(
            f"{name}: its code has changed since this run was planned ({planned} then, {loaded} now); "
            "give the same command again"
        )


def threads_of(spec: RunSpec, plugins: Plugins, context: RunContext) -> int | None:
    """CPU threads of a planned run; None: its share of the cores is not known yet."""
    return thread_count(spec, encoder_class(spec, plugins), context)


def thread_count(spec: RunSpec, encoder: type[Encoder], context: RunContext) -> int | None:
    """CPU threads of a run. Their number changes the last bits of results.

    A small network therefore always has one thread, however many runs are made at the same time.
    """
    trained = Vector if spec.freeze else encoder
    return context.threads or trained.threads or context.cores


def worker_count(context: RunContext, processes: Processes | None) -> int:
    """Threads of this process that read inputs: those of the run, divided among its processes."""
    workers = cores_of_job() if context.workers is None else context.workers
    return math.ceil(workers / (1 if processes is None else processes.count))


def build_learner(spec: RunSpec, plugins: Plugins, labels: int) -> Method | Estimator:
    """The spec's method or estimator, with its hyper-parameters. labels: K."""
    cls = plugins.methods[spec.method]
    if issubclass(cls, Estimator):
        return cls(cls.Config(**copy.deepcopy(spec.config)), labels, estimator_seed(spec))
    torch.manual_seed(stream_seed(spec.seed, "method"))
    return build_method(cls, cls.Config(**copy.deepcopy(spec.config)), labels)


def build_encoder(spec: RunSpec, encoder: type[Encoder], run_data: RunData) -> Encoder:
    """The encoder to train; for cached features, one that passes them through."""
    rows = np.zeros(1, dtype=np.int64)
    example = run_data.train.view(rows, "plain", stream(spec.seed, "example"))[0]
    if spec.freeze:
        return Vector(example)
    torch.manual_seed(stream_seed(spec.seed, "network"))
    return load_tuned(encoder, spec, example)
