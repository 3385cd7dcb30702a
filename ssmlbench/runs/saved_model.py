"""The stored model of a run, ready to score raw inputs: its folder and its encoder's weights suffice."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Generator, Tensor

from ssmlbench.core.backbones import absolute_backbone
from ssmlbench.core.commands import Sources
from ssmlbench.core.errors import DISK_ERRORS, DamagedFile, RunFailed, UserError
from ssmlbench.core.freed_memory import freed_memory_kept
from ssmlbench.core.paths import near
from ssmlbench.core.plain_text import line_of
from ssmlbench.core.seeds import stream
from ssmlbench.core.spec import RunSpec
from ssmlbench.data.task import Task
from ssmlbench.inputs.cached import CachedInputs
from ssmlbench.inputs.encoders import Encoder, EncoderOptions, Vector, find_encoder
from ssmlbench.inputs.encoders.base import square
from ssmlbench.inputs.encoders.layout import placed
from ssmlbench.inputs.encoders.tuning import is_partly_trained, load_tuned
from ssmlbench.inputs.frozen import (
    FrozenEncoder,
    encoding_precision,
    frozen_network,
    half_precision_features,
)
from ssmlbench.inputs.prepared import prepared_rows
from ssmlbench.inputs.scaling import Scale
from ssmlbench.inputs.splits import (
    Inputs,
    ReadRows,
    RowNumbers,
    SomeRows,
    SplitInputs,
    view_by_view,
)
from ssmlbench.inputs.views import View
from ssmlbench.kit.estimator import Estimator
from ssmlbench.kit.method import Method
from ssmlbench.plugins.digest import code_digest, encoder_code
from ssmlbench.plugins.loader import Plugins
from ssmlbench.plugins.source_lines import explain, passed_through
from ssmlbench.protocol.diagnostics import Float32Array
from ssmlbench.protocol.judge import checked_scores
from ssmlbench.runs.finished import Finished, read_result
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.model_card import MAKE_AGAIN, ModelCard, read_model_card, versions
from ssmlbench.runs.train import build_learner
from ssmlbench.training.checkpoint import Checkpoint, StoredState
from ssmlbench.training.device import pick_device
from ssmlbench.training.estimation import features_of
from ssmlbench.training.estimator_state import restore_estimator
from ssmlbench.training.evaluation import Scorer
from ssmlbench.training.model import Model
from ssmlbench.training.repeatable import make_repeatable


class SavedModel:
    """The model of a finished run."""

    def __init__(
        self, folder: Path, plugins: Plugins, backbone: str | None = None, device: str = "auto"
    ):
        """backbone: the encoder's path on this machine, if it differs from the run's."""
        self.card: ModelCard = read_model_card(folder)
        stored = _read_weights(RunFolder(folder), self.card.run)
        self.spec = self.card.spec
        if backbone is not None:
            self.spec = dataclasses.replace(self.spec, backbone=absolute_backbone(backbone))
        self.device = pick_device(device)
        self.options = EncoderOptions.of(self.spec)
        path = Path(self.spec.backbone)
        if path.is_absolute() and not path.exists():
            raise UserError(
                f"{path}: the encoder of this model is not there; --backbone says where its weights are"
            )
        self._check_plugins(folder, plugins)
        self.encoder = find_encoder(plugins.encoders, self.spec.backbone, self.card.kind)
        self.notes = self._differences(plugins)
        if state := stored.tensors.get("encoder"):
            arrays = {name: tensor.numpy() for name, tensor in state.items()}
            self.encoder = self.encoder.with_state(arrays)
        scale = stored.tensors.get("scale")
        self.scale = Scale(**scale) if scale else None
        self._classes = (plugins.methods[self.spec.method], self.encoder)
        with self.mistakes():
            self.learner = build_learner(self.spec, plugins, len(self.card.labels))
        self._stored: StoredState = stored
        self._frozen: Encoder | None = None
        self._scorer: Scorer | None = None
        self._features: SplitInputs | None = None  # of the training rows, from the cache
        if isinstance(self.learner, Estimator):
            arrays = {k: v.numpy() for k, v in stored.tensors.get("estimator", {}).items()}
            restore_estimator(self.learner, arrays, stored.facts["estimator"])
        make_repeatable(None, self.device)

    def _check_plugins(self, folder: Path, plugins: Plugins) -> None:
        """Raise a UserError that names the file of a method or encoder that is not known here."""
        needed: dict[str, tuple[str, Any]] = {"method": (self.spec.method, plugins.methods)}
        if self.spec.encoder_code:
            needed["encoder"] = (self.spec.backbone, plugins.encoders)
        for what, (name, known) in needed.items():
            if name not in known:
                run = read_result(folder)
                files = Sources.of_result(run.result).plugins if isinstance(run, Finished) else ()
                flags = " ".join(f"--plugin {near(Path(file))}" for file in files)
                raise UserError(
                    f"{what} {name} of this model is a plugin; add {flags or '--plugin FILE'}"
                )

    def _differences(self, plugins: Plugins) -> list[str]:
        """The changes that may make scores differ from those of the run, a line each."""
        spec, made = self.spec, self.card.made_with
        notes = []
        method = plugins.methods[spec.method]
        for name, then, now in (
            (f"method {method.name}", spec.code, code_digest(method)),
            (f"encoder {self.encoder.name}", spec.encoder_code, encoder_code(self.encoder)),
        ):
            if then != now:
                notes.append(f"the code of {name} has changed since the model was made")
        if spec.is_estimator and made.get("scikit-learn") != versions()["scikit-learn"]:
            notes.append(
                f"the model was made with scikit-learn {made.get('scikit-learn')}, here is "
                f"{versions()['scikit-learn']}"
            )
        return notes

    @contextmanager
    def mistakes(self) -> Iterator[None]:
        """Raise an error of the method's or encoder's code, or bad scores, as a UserError with its line."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            on_disk = isinstance(error, OSError) and error.errno in DISK_ERRORS
            its_own = isinstance(error, RunFailed) or passed_through(error, *self._classes)
            if on_disk or not its_own:
                raise
            raise UserError(explain(error, *self._classes)) from error

    def scores(self, raws: Sequence[Any]) -> Float32Array:
        """Scores in [0, 1] of raw inputs (texts, images, vectors): N × K."""
        if not len(raws):
            return np.zeros((0, len(self.card.labels)), dtype=np.float32)
        with self.mistakes():
            return self._scores_of(self._inputs(raws))

    def scorer(self, raws: Sequence[Any]) -> tuple[Scorer, SplitInputs]:
        """The network, and the raw inputs in its form: encoded once, for any number of passes."""
        if isinstance(self.learner, Estimator):
            raise UserError(f"{self.spec.method} is an estimator: it has no network")
        inputs = self._inputs(raws)
        if isinstance(inputs, EncodedInputs):
            features = inputs.view(np.arange(len(inputs)), "plain", stream(0, "encoded once"))
            inputs = CachedInputs({"plain": features}, draws=1)
        if self._scorer is None:
            self._scorer = self._network(inputs)
        return self._scorer, inputs

    def scores_of_rows(self, task: Task, rows: RowNumbers) -> Float32Array:
        """Scores of training rows of its own data set; features that are in the cache are read there."""
        features = self._cached(task)
        if features is None:
            inputs = task.inputs("train")
            return self.scores([inputs[int(row)] for row in rows])
        with self.mistakes():
            return self._scores_of(SomeRows(features, rows))

    def _cached(self, task: Task) -> SplitInputs | None:
        """The features of the training rows, if the cache has them all."""
        if self._features is None and self.spec.freeze:
            frozen = FrozenEncoder(self.spec, self.encoder, task, self.device)
            if frozen.folder("train", "plain", 0).complete:
                features = frozen.plain("train")
                self._features = features if self.scale is None else features.scaled(self.scale)
        return self._features

    def _scores_of(self, inputs: SplitInputs) -> Float32Array:
        if isinstance(self.learner, Estimator):
            scores = self.learner.scores(features_of(inputs, np.arange(len(inputs))))
            return checked_scores(scores, (len(inputs), len(self.card.labels)), self.spec.method)
        if self._scorer is None:
            self._scorer = self._network(inputs)
        return self._scorer.scores(inputs)

    def _inputs(self, raws: Sequence[Any]) -> SplitInputs:
        """Raw inputs in the form that the network or the estimator reads."""
        prepared = self._prepared(raws)
        width = None if self.scale is None or self.spec.freeze else len(self.scale.mean)
        if width is not None and prepared.shape[1:] != (width,):
            raise UserError(
                f"these rows have {prepared.shape[1]:,} numbers; the model was trained on {width:,}"
            )
        views = self.encoder.views(self.card.kind, True, self.options)
        inputs = Inputs(prepared, views)
        if not self.spec.freeze:
            return inputs if self.scale is None else inputs.scaled(self.scale)
        if self._frozen is None:
            rows = np.zeros(1, dtype=np.int64)
            example = inputs.view(rows, "plain", stream(0, "example"))[0]
            self._frozen = placed(frozen_network(self.encoder, self.spec, example), self.device)
        return EncodedInputs(inputs, self._frozen, self.device, self.spec, self.scale)

    def _prepared(self, raws: Sequence[Any]) -> Tensor:
        """Raw inputs as the encoder's, with the pixels that the run had."""
        size = self.options.image_size
        if self.spec.fast_resize and size:
            return torch.stack(
                [square(raw, size, self.encoder.interpolation, fast=True) for raw in raws]
            )
        return prepared_rows(self.encoder, raws, self.options)

    def _network(self, inputs: SplitInputs) -> Scorer:
        """The trained network, built for inputs of this shape."""
        method = cast(Method, self.learner)
        example = inputs.view(np.zeros(1, dtype=np.int64), "plain", stream(0, "example"))[0]
        if self.spec.freeze:
            encoder: Encoder = Vector(example)
        elif is_partly_trained(self.spec):
            encoder = load_tuned(self.encoder, self.spec, example)
        else:
            # The file has all its weights: the pretrained ones are not needed.
            has_choice = "weights" in self.encoder.options
            options = dataclasses.replace(self.options, weights="none") if has_choice else None
            encoder = self.encoder(example, options or self.options)
        model = Model(self.spec, method, encoder, self.device)
        try:
            stored = dict(self._stored.tensors["network"])
            same = {
                k: v for k, v in model.network.state_dict().items() if k not in model.learnt_state()
            }
            for network in (model.network, model.averaged_network):
                network.load_state_dict({**same, **stored})
        except (RuntimeError, KeyError) as error:
            reason = line_of(error, -1)
            raise UserError(f"the stored weights do not fit these inputs: {reason}") from None
        method.load_state(dict(self._stored.tensors.get("method", {})))
        for name, value in self._stored.facts["method"].items():
            setattr(method, name, value)
        return Scorer(self.spec, method.to(self.device), model)


def _read_weights(folder: RunFolder, run: str) -> StoredState:
    """The arrays of a kept model; DamagedFile if they are missing, damaged or of another run."""
    try:
        folder.verify(folder.weights_file.name)
        return Checkpoint(folder.weights_file, run).load()
    except DamagedFile as damaged:
        missing = not os.path.lexists(folder.weights_file)  # a broken link is damage
        remedy = "copy the whole run folder" if missing else MAKE_AGAIN
        raise DamagedFile(damaged.file, damaged.reason, remedy) from None


class EncodedInputs:
    """Rows whose features are computed when a view is asked for, rounded as cached ones are."""

    on_the_fly = False

    def __init__(
        self,
        inputs: Inputs,
        encoder: Encoder,
        device: torch.device,
        spec: RunSpec,
        scale: Scale | None,
    ):
        self.inputs = inputs
        self.encoder = encoder
        self.device = device
        self.spec = spec
        self.scale = scale
        self.views: dict[str, View] = inputs.views

    def __len__(self) -> int:
        return len(self.inputs)

    @torch.inference_mode()
    def view(self, rows: RowNumbers, view: str, generator: Generator) -> Tensor:
        """Features of one view of the rows."""
        size = self.encoder.batch_rows
        parts = [rows[i : i + size] for i in range(0, max(len(rows), 1), size)]
        batches = (self.inputs.view(part, view, generator) for part in parts)
        with freed_memory_kept(), encoding_precision(self.device, self.spec):
            encoded = [
                half_precision_features(
                    type(self.encoder), self.encoder(batch.to(self.device)), batch
                )
                for batch in batches
            ]
        features = torch.cat(encoded).cpu()
        return (features if self.scale is None else self.scale(features)).float()

    def read(self, rows: RowNumbers) -> ReadRows:
        """The rows, for any number of views."""
        return view_by_view(self, rows)

    def scaled(self, scale: Any) -> EncodedInputs:
        """The same rows with every vector put through `scale`."""
        return EncodedInputs(self.inputs, self.encoder, self.device, self.spec, scale)
