"""One run from its spec to its folder: data, protocol, training, metrics, result.json last."""

from __future__ import annotations

import dataclasses
import json
import platform
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.numpy import save_file

import ssmlbench
from ssmlbench import metrics
from ssmlbench.checkpoint import Checkpoint
from ssmlbench.dataset import DatasetAdapter, Task, prepare
from ssmlbench.device import make_repeatable, pick_device
from ssmlbench.encoders import DEFAULT_BACKBONE, Encoder, EncoderOptions, Vector, find_encoder
from ssmlbench.errors import Diverged, RunFailed, UserError
from ssmlbench.features import FrozenEncoder
from ssmlbench.heartbeat import Heartbeat
from ssmlbench.method import Method
from ssmlbench.protocol import Audit, Observation, observe
from ssmlbench.registry import Plugins, code_digest
from ssmlbench.scaling import scaled_inputs
from ssmlbench.seeds import stream, stream_seed
from ssmlbench.spec import RunSpec, check_spec, parse_config
from ssmlbench.store import RunFolder, temporary_beside, write_atomically
from ssmlbench.trainer import Material, Outcome, Trainer
from ssmlbench.views import BackTranslated, Inputs, SomeRows, SplitInputs, StoredInputs, View

Notify = Callable[[Mapping[str, Any]], None]

STRONG_VIEWS = 4
"""R: drawn strong views of a row that are cached under `--freeze`."""
HEAD_LR = 1e-3
"""The learning rate of heads on frozen features when the command line names none."""
IN_MEMORY_BYTES = 512 * 2**20
"""A split whose prepared inputs are larger is read and prepared row by row."""
PREPARED_ROWS = 1000
"""Rows prepared in one go."""


@dataclass(frozen=True)
class Place:
    """Where and with what a run is made; nothing here changes its number."""

    results: Path
    device: str = "auto"
    threads: int | None = None  # CPU threads of a run; None: what its encoder says
    workers: int = 0  # threads that read inputs which are too many for memory
    cores: int | None = None  # its share of them, for an encoder that can use several


def resolve(plugins: Plugins, settings: Mapping[str, str], **fields: Any) -> RunSpec:
    """A full spec from what was typed: names checked, every default filled in, data fingerprinted.

    settings: the `--set` texts, which go to the method's Config. Fields that are None take the
    default of the method, the data set or the encoder.
    """
    typed = {name: value for name, value in fields.items() if value is not None}
    method = plugins.methods[typed["method"]]
    adapter = plugins.datasets[typed["dataset"]]
    regime = typed.setdefault("regime", "semi")
    if regime not in method.regimes:
        raise UserError(
            f"method {method.name} does not support --regime {regime}; it supports "
            f"{', '.join(sorted(method.regimes))}"
        )
    backbone = typed.setdefault("backbone", _default_backbone(adapter))
    if adapter.kind == "text" and Path(backbone).expanduser().is_dir():
        # A model's folder means the same in every process, wherever that one was started.
        backbone = typed["backbone"] = str(Path(backbone).expanduser().absolute())
    encoder = find_encoder(plugins.encoders, backbone, adapter.kind, adapter.name)
    freeze = typed.setdefault("freeze", False)
    if freeze:
        typed.setdefault("strong_views", STRONG_VIEWS)
    elif "strong_views" in typed:
        raise UserError("--strong-views is for --freeze: otherwise every step draws a view anew")
    options = _encoder_options(encoder, typed)
    config = parse_config(method.Config, _own(settings, method, plugins), f"method {method.name}")
    values = dataclasses.asdict(config)
    defaults = dataclasses.asdict(method.Config())
    epochs = typed.setdefault("epochs", RunSpec.epochs)
    typed.setdefault("warmup_epochs", round(epochs * RunSpec.warmup_epochs / RunSpec.epochs))
    typed.setdefault("lr", HEAD_LR if freeze else encoder.lr)
    on_vectors = freeze or adapter.kind == "vector"
    typed.setdefault("projection", "mlp" if on_vectors else method.projection)
    if on_vectors:
        typed.setdefault("scaling", "standard")
    elif "scaling" in typed:
        raise UserError(
            "--scaling is for feature vectors: add --freeze, or leave it out, as an encoder that "
            "is trained finds its own scale"
        )
    if regime != "semi":
        typed["pi"] = None
    if regime != "partial-positive":
        typed["share"] = None
    spec = RunSpec(
        **{**typed, **dataclasses.asdict(options), "weights": ""},
        config=values,
        changed=tuple(sorted(k for k in values if values[k] != defaults[k])),
        code=code_digest(method),
        encoder_code="" if encoder.__module__.startswith("ssmlbench.") else code_digest(encoder),
    )
    check_spec(spec)
    return dataclasses.replace(
        spec, weights=encoder.weights_id(options), data=prepare(adapter()).card.fingerprint
    )


def _own(settings: Mapping[str, str], method: type[Method], plugins: Plugins) -> dict[str, str]:
    """The settings meant for this method: `key=…`, and `method.key=…` without the name."""
    own = {}
    for key, text in settings.items():
        owner, dot, rest = key.rpartition(".")
        if not dot or plugins.methods[owner] is method:
            own[rest] = text
    return own


def _default_backbone(adapter: type[DatasetAdapter]) -> str:
    return getattr(adapter, "backbone", DEFAULT_BACKBONE[adapter.kind])


def _encoder_options(encoder: type[Encoder], typed: Mapping[str, Any]) -> EncoderOptions:
    """The encoder's options as typed or as it has them; one that it does not have is an error."""
    names = [field.name for field in dataclasses.fields(EncoderOptions)]
    for name in names:
        # An encoder that starts at random anyway has no quarrel with `--weights none`.
        harmless = name == "weights" and typed.get(name) == "none"
        if name in typed and name not in encoder.options and not harmless:
            raise UserError(
                f"--{name.replace('_', '-')}: --backbone {encoder.name} has no such choice; it has "
                f"{', '.join(sorted(encoder.options)) or 'none'}"
            )
    return EncoderOptions(**{n: typed.get(n, v) for n, v in encoder.options.items()})


def execute(spec: RunSpec, plugins: Plugins, place: Place, notify: Notify = lambda e: None) -> str:
    """Make the run unless it is made: "done", or "already" when its result was there.

    Whoever else is asked for the same run waits here, then finds it made.
    """
    folder = RunFolder.of(place.results, spec)
    if folder.finished:
        return "already"
    try:
        with folder.claim(lambda: notify({"kind": "waits", "text": "another process makes it"})):
            if folder.finished:
                return "already"
            notify({"kind": "start", "epochs": spec.epochs})
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


def _make(spec: RunSpec, plugins: Plugins, place: Place, folder: RunFolder, notify: Notify) -> None:
    make_repeatable(threads_of(spec, plugins, place))
    device = pick_device(place.device)
    task = open_task(spec, plugins)
    if task.card.fingerprint != spec.data:
        raise UserError(
            f"data set {spec.dataset} was prepared anew since this run was planned; give the same "
            "command again"
        )
    inputs = input_loader(spec, plugins, task, place, device, notify)
    material, notes = gather(spec, task, inputs)
    for note in notes:
        notify({"kind": "warning", "text": note})
    method = build_method(spec, plugins, task)
    encoder = build_encoder(spec, plugins, material)
    checkpoint = Checkpoint(folder.checkpoint_file)
    trainer = Trainer(spec, method, encoder, material, device, checkpoint, notify, place.workers)
    notify({"kind": "training"})
    try:
        outcome = trainer.train()
    except RunFailed as error:
        checkpoint.delete()  # going on from here would fail again
        if not (spec.judged_on == "held-out" and isinstance(error, Diverged)):
            raise
        write_lost_trial(spec, folder, str(error))
        notify({"kind": "warning", "text": str(error)})
        return
    write_result(spec, folder, task, material, outcome, device, notes)
    checkpoint.delete()


def threads_of(spec: RunSpec, plugins: Plugins, place: Place) -> int | None:
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


def gather(
    spec: RunSpec, task: Task, inputs: Callable[[str], SplitInputs]
) -> tuple[Material, list[str]]:
    """The run's material, and a line for everything about it the user should know.

    inputs: a split's name → its inputs.
    """
    truth = task.truth("train")
    observation = observe(truth, spec)
    if spec.judged_on == "held-out":  # the test set is not opened, the truth not handed on
        train, rows = inputs("train"), observation.validation
        held_out = SomeRows(train, rows)
        return Material(train, held_out, observation, None, observation.labels[rows]), []
    test_truth = task.truth("test")
    material = Material(inputs("train"), inputs("test"), observation, Audit(truth), test_truth)
    return material, _notes(task, observation, test_truth)


def _notes(task: Task, observation: Observation, test_truth: npt.NDArray[np.int8]) -> list[str]:
    names = task.card.label_names
    notes = []
    if skipped := sum(task.card.skipped.values()):
        notes.append(f"{skipped:,} bad rows of {task.card.name} were left out when it was prepared")
    if len(missing := observation.labels_without_positive):
        listed = ", ".join(names[k] for k in missing[:5]) + (", …" if len(missing) > 5 else "")
        notes.append(
            f"{len(missing)} of {len(names)} labels have no labelled positive ({listed}); nothing "
            "can be learnt of them at this seed and π"
        )
    if empty := metrics.empty_labels(test_truth):
        notes.append(
            f"{empty} of {len(names)} labels have no test positive: left out of mAP and Macro-F1"
        )
    return notes


def input_loader(
    spec: RunSpec,
    plugins: Plugins,
    task: Task,
    place: Place,
    device: torch.device,
    notify: Notify,
) -> Callable[[str], SplitInputs]:
    """From a split's name to its inputs: prepared for the encoder, or features from the cache."""
    encoder = find_encoder(plugins.encoders, spec.backbone, task.card.kind)
    options = EncoderOptions.of(spec)

    def prepared(split: str) -> SplitInputs:
        return load_inputs(encoder, options, task, split)

    load: Callable[[str], SplitInputs] = prepared
    if spec.freeze:
        load = FrozenEncoder(spec, encoder, task, prepared, device, place.workers, notify).inputs
    return scaled_inputs(load) if spec.scaling == "standard" else load


def load_inputs(
    encoder: type[Encoder], options: EncoderOptions, task: Task, split: str
) -> SplitInputs:
    """A split prepared for an encoder, with its back-translations where there are any."""
    views = encoder.views(task.card.kind, task.card.flips, options)
    inputs = _prepared(encoder, options, task.inputs(split), views)
    translations = task.back_translations(split)
    if translations is None:
        return inputs
    return BackTranslated(inputs, _prepared(encoder, options, translations, views))


def _prepared(
    encoder: type[Encoder], options: EncoderOptions, column: Any, views: dict[str, View]
) -> SplitInputs:
    """In memory where it is small, else read when needed."""
    count = len(column)
    first = encoder.prepare([column[0]], options)
    if first.nbytes * count > IN_MEMORY_BYTES:
        return StoredInputs(column, lambda raws: encoder.prepare(raws, options), views)
    values = torch.empty((count, *first.shape[1:]), dtype=first.dtype)
    for start in range(0, count, PREPARED_ROWS):
        raws = list(column[start : start + PREPARED_ROWS])
        values[start : start + len(raws)] = encoder.prepare(raws, options)
    return Inputs(values, views)


def build_method(spec: RunSpec, plugins: Plugins, task: Task) -> Method:
    cls = plugins.methods[spec.method]
    torch.manual_seed(stream_seed(spec.seed, "method"))
    return cls(cls.Config(**spec.config), task.label_count)


def build_encoder(spec: RunSpec, plugins: Plugins, material: Material) -> Encoder:
    """The encoder that is trained; on cached features there is nothing left of it to train."""
    example = material.train.view(
        np.zeros(1, dtype=np.int64), "plain", stream(spec.seed, "example")
    )
    if spec.freeze:
        return Vector(example[0])
    kind = plugins.datasets[spec.dataset].kind
    cls, options = find_encoder(plugins.encoders, spec.backbone, kind), EncoderOptions.of(spec)
    if (there := cls.weights_id(options)) != spec.weights:
        raise UserError(
            f"--backbone {spec.backbone}: its weights have changed since this run was asked for "
            f"({spec.weights} then, {there} now); ask for it again"
        )
    torch.manual_seed(stream_seed(spec.seed, "network"))
    return cls(example[0], options)


def write_result(
    spec: RunSpec,
    folder: RunFolder,
    task: Task,
    material: Material,
    outcome: Outcome,
    device: torch.device,
    notes: list[str],
) -> None:
    """Scores and history first, result.json last: with it there, the run is finished."""
    import pandas as pd

    truth = material.test_truth == 1
    unfinished = temporary_beside(folder.scores_file)
    save_file(
        {
            "scores": np.ascontiguousarray(outcome.scores),
            "truth": truth.astype(np.uint8),
            "thresholds": outcome.thresholds,
        },
        unfinished,
    )
    unfinished.replace(folder.scores_file)
    history = pd.DataFrame(outcome.history)
    write_atomically(folder.history_file, history.to_csv(index=False))
    semi = history[history.phase == "semi"] if (history.phase == "semi").any() else history
    result = {
        "spec": spec.as_dict(),
        "hash": spec.hash,
        "observation": material.observation.digest,
        "metrics": all_metrics(outcome, truth),
        "selected_epoch": outcome.selected_epoch,
        "steps": outcome.steps,
        "labels_without_test_positive": metrics.empty_labels(truth),
        "notes": notes,
        "cost": {
            "seconds": float(history.seconds.sum()),
            "seconds_per_epoch": float(semi.seconds.median()),
            "peak_memory_mb": float(history.peak_memory_mb.max()),
        },
        "made_with": {
            "ssmlbench": ssmlbench.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            "precision": outcome.precision,
            "threads": torch.get_num_threads(),
            "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
        },
        "data": {"rows": task.card.rows, "labels": task.label_count},
    }
    write_atomically(folder.result_file, json.dumps(result, indent=1))


def write_lost_trial(spec: RunSpec, folder: RunFolder, reason: str) -> None:
    """A trial that diverged is finished: it scores 0, and is not tried again."""
    result = {
        "spec": spec.as_dict(),
        "hash": spec.hash,
        "metrics": {"threshold": {"default": {"map": 0.0}}},
        "diverged": reason,
        "cost": {"seconds": 0.0},
    }
    write_atomically(folder.result_file, json.dumps(result, indent=1))


def all_metrics(
    outcome: Outcome, truth: npt.NDArray[np.bool_]
) -> dict[str, dict[str, dict[str, float]]]:
    """The five metrics by decision rule and by convention."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for decision in metrics.DECISIONS:
        predicted = metrics.decide(
            outcome.scores, decision, truth=truth, thresholds=outcome.thresholds
        )
        found[decision] = {
            convention: metrics.evaluate(outcome.scores, truth, predicted, convention=convention)
            for convention in ("default", "released")
        }
    return found


def quieten() -> None:
    """Silence third-party warnings that say nothing about the user's run."""
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
