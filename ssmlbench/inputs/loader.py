"""Loads the inputs of a run's splits."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ssmlbench.core.events import Notify
from ssmlbench.core.freed_memory import freed_memory_kept
from ssmlbench.core.spec import RunSpec
from ssmlbench.data import Task
from ssmlbench.inputs.cached import CachedInputs
from ssmlbench.inputs.decoding import Shortcuts
from ssmlbench.inputs.encoders import Encoder, EncoderOptions
from ssmlbench.inputs.frozen import FrozenEncoder
from ssmlbench.inputs.prepared import Reading, in_cache, prepared_inputs, square_images
from ssmlbench.inputs.scaling import Scale
from ssmlbench.inputs.splits import SplitInputs


class SplitLoader:
    """Loads a run's splits: raw inputs, or features under `--freeze`, scaled under `--scaling`."""

    def __init__(
        self,
        spec: RunSpec,
        encoder: type[Encoder],
        task: Task,
        device: torch.device,
        workers: int = 0,
        notify: Notify = lambda event: None,
        decoded_cache: bool = True,
    ):
        """device: of a frozen encoder, which runs while a split is loaded. workers: decoding threads.

        decoded_cache: whether decoded images are cached on disk.
        """
        self.spec = spec
        self.encoder = encoder
        self.task = task
        self.reading = Reading(workers, decoded_cache, notify=notify)
        self.frozen = FrozenEncoder(spec, encoder, task, device, workers, notify, decoded_cache)
        self._scale: Scale | None = None

    def load(self, split: str) -> SplitInputs:
        """The inputs that the run trains on."""
        return self.scaled(split) if self.spec.scaling == "standard" else self.unscaled(split)

    def fill_caches(self, split: str) -> None:
        """Compute what other runs read too: frozen features, or decoded images if they are many."""
        if self.spec.freeze:
            self.features(split)
            return
        options, quick = EncoderOptions.of(self.spec), Shortcuts.of(self.spec)
        images = square_images(self.encoder, options, self.task, split, self.reading, quick)
        if images is not None:
            in_cache(images, self.reading)

    def raw(self, split: str) -> SplitInputs:
        """The inputs of the encoder."""
        options = EncoderOptions.of(self.spec)
        quick = Shortcuts.of(self.spec)
        with freed_memory_kept():  # of decoded images, one after the other
            return prepared_inputs(self.encoder, options, self.task, split, self.reading, quick)

    def features(self, split: str) -> CachedInputs:
        """The frozen encoder's features of the split."""
        return self.frozen.inputs(split)

    def unscaled(self, split: str) -> SplitInputs:
        """The inputs before scaling: features under `--freeze`, else the encoder's inputs."""
        return self.features(split) if self.spec.freeze else self.raw(split)

    def scaled(self, split: str) -> SplitInputs:
        """The split with every vector on the scale of the training rows."""
        inputs = self.unscaled(split)
        return inputs.scaled(self._training_scale(inputs if split == "train" else None))

    def _training_scale(self, train: SplitInputs | None = None) -> Scale:
        """The scale of the training rows. train: these rows, if they are loaded."""
        if self._scale is None:
            rows = self.unscaled("train") if train is None else train
            self._scale = Scale.of(rows, self.spec.rotate_columns)
        return self._scale

    @property
    def encoder_state(self) -> dict[str, Tensor]:
        """The state of a fitted encoder, by name."""
        if not (self.spec.freeze and self.encoder.fitted):
            return {}
        state = self.frozen.fitted.state
        return {name: torch.from_numpy(np.array(array)) for name, array in state.items()}

    @property
    def scale_state(self) -> dict[str, Tensor]:
        """The scale of the training rows; empty if vectors are not scaled."""
        if self.spec.scaling != "standard":
            return {}
        return self._training_scale().state
