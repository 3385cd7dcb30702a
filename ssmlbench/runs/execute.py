"""One run from its spec to its folder: data, protocol, training, metrics, result.json last."""

from __future__ import annotations

import json
import warnings

import numpy as np
import torch

from ssmlbench.core.errors import Diverged, RunFailed, UserError
from ssmlbench.core.events import Notify, Started, TrainingStarted, Waiting, Warned
from ssmlbench.core.files import write_atomically
from ssmlbench.core.seeds import stream, stream_seed
from ssmlbench.core.spec import RunSpec
from ssmlbench.data import Task, prepare
from ssmlbench.inputs import encoders
from ssmlbench.inputs.encoders import Encoder, Vector, find_encoder
from ssmlbench.kit.method import Method
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.heartbeat import Heartbeat
from ssmlbench.runs.result import write_diverged_trial, write_result
from ssmlbench.training.checkpoint import Checkpoint
from ssmlbench.training.device import make_repeatable, pick_device
from ssmlbench.training.run_data import RunData, build_run_data, input_loader
from ssmlbench.training.trainer import Trainer


def execute(
    spec: RunSpec, plugins: Plugins, place: RunContext, notify: Notify = lambda e: None
) -> str:
    """Make the run unless it is made: "done", or "already" when its result was there.

    Whoever else is asked for the same run waits here, then finds it made.
    """
    folder = RunFolder.of(place.results, spec)
    if folder.finished:
        return "already"
    try:
        with folder.claim(lambda: notify(Waiting("another process makes it"))):
            if folder.finished:
                return "already"
            notify(Started())
            write_atomically(folder.spec_file, json.dumps(spec.as_dict(), indent=1))
            with Heartbeat(folder, spec.epochs, notify) as heartbeat:
                _make(spec, plugins, place, folder, heartbeat.notify)
            folder.error_file.unlink(missing_ok=True)
    except Exception as error:
        if not folder.finished and not folder.checkpoint_file.exists():
            folder.spec_file.unlink(missing_ok=True)
            folder.remove_if_empty(place.results)
        if isinstance(error, UserError | RunFailed):
            raise
        raise RunFailed(f"{type(error).__name__}: {error}") from error
    return "done"


def _make(
    spec: RunSpec, plugins: Plugins, place: RunContext, folder: RunFolder, notify: Notify
) -> None:
    make_repeatable(threads_of(spec, plugins, place))
    device = pick_device(place.device)
    task = open_task(spec, plugins)
    if task.card.fingerprint != spec.data:
        raise UserError(
            f"data set {spec.dataset} was prepared anew since this run was planned; give the same "
            "command again"
        )
    inputs = input_loader(spec, plugins, task, device, place.workers, notify)
    material, notes = build_run_data(spec, task, inputs)
    for note in notes:
        notify(Warned(note))
    method = build_method(spec, plugins, task)
    encoder = build_encoder(spec, plugins, material)
    checkpoint = Checkpoint(folder.checkpoint_file)
    trainer = Trainer(spec, method, encoder, material, device, checkpoint, notify, place.workers)
    notify(TrainingStarted())
    try:
        outcome = trainer.train()
    except RunFailed as error:
        checkpoint.delete()  # going on from here would fail again
        if not (spec.judged_on == "held-out" and isinstance(error, Diverged)):
            raise
        write_diverged_trial(spec, folder, str(error))
        notify(Warned(str(error)))
        return
    write_result(spec, folder, task, material, outcome, device, notes)
    checkpoint.delete()


def threads_of(spec: RunSpec, plugins: Plugins, place: RunContext) -> int | None:
    """CPU threads of a run. They change the last bits of a number, so what is small always has one,
    however many runs are made beside it."""
    if place.threads:
        return place.threads
    if spec.freeze:
        return Vector.threads
    kind = plugins.datasets[spec.dataset].kind
    return find_encoder(plugins.encoders, spec.backbone, kind).threads or place.cores


def open_task(spec: RunSpec, plugins: Plugins) -> Task:
    return prepare(plugins.datasets[spec.dataset]())


def build_method(spec: RunSpec, plugins: Plugins, task: Task) -> Method:
    cls = plugins.methods[spec.method]
    torch.manual_seed(stream_seed(spec.seed, "method"))
    return cls(cls.Config(**spec.config), task.label_count)


def build_encoder(spec: RunSpec, plugins: Plugins, run_data: RunData) -> Encoder:
    """The encoder that is trained; on cached features there is nothing left of it to train."""
    rows = np.zeros(1, dtype=np.int64)
    example = run_data.train.view(rows, "plain", stream(spec.seed, "example"))[0]
    if spec.freeze:
        return Vector(example)
    kind = plugins.datasets[spec.dataset].kind
    torch.manual_seed(stream_seed(spec.seed, "network"))
    return encoders.build_encoder(
        find_encoder(plugins.encoders, spec.backbone, kind), spec, example
    )


def quieten() -> None:
    """Silence third-party warnings that say nothing about the user's run."""
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
