"""What a run is made of, beside its method: inputs, what may be known of them, what stays sealed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ssmlbench.core.events import Notify
from ssmlbench.core.spec import RunSpec
from ssmlbench.data import Task
from ssmlbench.inputs.encoders import Encoder, EncoderOptions, find_encoder
from ssmlbench.inputs.frozen import FrozenEncoder
from ssmlbench.inputs.scaling import scaled_inputs
from ssmlbench.inputs.views import BackTranslated, Inputs, SomeRows, SplitInputs, StoredInputs, View
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol import metrics
from ssmlbench.protocol.observation import Observation, observe
from ssmlbench.protocol.sealed import SealedTruth

IN_MEMORY_BYTES = 512 * 2**20
"""A split whose prepared inputs are larger is read and prepared row by row."""
PREPARED_ROWS = 1000
"""Rows prepared in one go."""


@dataclass
class RunData:
    """All that is handed to the trainer."""

    train: SplitInputs
    test: SplitInputs  # the rows that are judged
    observation: Observation
    audit: SealedTruth | None  # None: nothing is graded
    test_truth: npt.NDArray[np.int8]  # read by `--selection oracle` only


def build_run_data(
    spec: RunSpec, task: Task, inputs: Callable[[str], SplitInputs]
) -> tuple[RunData, list[str]]:
    """The run's material, and a line for everything about it the user should know.

    inputs: a split's name → its inputs.
    """
    truth = task.truth("train")
    observation = observe(truth, spec)
    if spec.judged_on == "held-out":  # the test set is not opened, the truth not handed on
        train, rows = inputs("train"), observation.validation
        held_out = SomeRows(train, rows)
        return RunData(train, held_out, observation, None, observation.labels[rows]), []
    test_truth = task.truth("test")
    material = RunData(inputs("train"), inputs("test"), observation, SealedTruth(truth), test_truth)
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
    device: torch.device,
    workers: int = 0,
    notify: Notify = lambda event: None,
) -> Callable[[str], SplitInputs]:
    """From a split's name to its inputs: prepared for the encoder, or features from the cache.

    device, workers: of an encoder that runs once and is not trained.
    """
    encoder = find_encoder(plugins.encoders, spec.backbone, task.card.kind)
    options = EncoderOptions.of(spec)

    def prepared(split: str) -> SplitInputs:
        return load_inputs(encoder, options, task, split)

    load: Callable[[str], SplitInputs] = prepared
    if spec.freeze:
        load = FrozenEncoder(spec, encoder, task, prepared, device, workers, notify).inputs
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
