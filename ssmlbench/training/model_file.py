"""The file of a run's model: learnt weights, and the scale and encoder state that its inputs need.

It is written when an epoch's scores are handed in, so that it always holds the judged epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ssmlbench.kit.estimator import Estimator
from ssmlbench.kit.method import Method
from ssmlbench.training.checkpoint import Checkpoint
from ssmlbench.training.estimator_state import NotStorable, estimator_state
from ssmlbench.training.model import Model

MOST_BYTES = 256 * 2**20
"""A larger model is kept only if `--keep-model` is typed."""
PER_ROW = ("targets", "trust")
"""Tensors of a method with an entry for each unlabelled row: other rows have no use for them."""

Sections = Mapping[str, Mapping[str, Tensor]]


@dataclass
class ModelFile:
    """Writes the model of a run. `declined` is the reason why there is none."""

    file: Checkpoint
    inputs: Sections  # "scale" and "encoder", applied to inputs
    most_bytes: int | None  # None: no limit
    declined: str = ""

    def keep_network(self, epoch: int, model: Model, method: Method) -> None:
        """Write the averaged weights, and the state of the method."""
        state = {k: v for k, v in method.state_dict().items() if k not in PER_ROW}
        learnt = {"network": model.learnt_state(), "method": state}
        # Attributes that a method's `setup` took from its data, e.g. that images have patches.
        plain = {
            name: value
            for name, value in vars(method).items()
            if isinstance(value, bool | int | float | str) and not name.startswith("_")
        }
        self._write(epoch, learnt, {"method": plain})

    def keep_estimator(self, estimator: Estimator) -> None:
        """Write the state of a fitted estimator."""
        try:
            arrays, description = estimator_state(estimator)
        except NotStorable as error:
            self.declined = f"{estimator.name} keeps what cannot be stored as arrays ({error})"
            self.file.delete()
            return
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        self._write(1, {"estimator": tensors}, {"estimator": description})

    def _write(self, epoch: int, learnt: Sections, facts: Mapping[str, Any]) -> None:
        sections = {**self.inputs, **learnt}
        size = sum(
            t.numel() * t.element_size() for part in sections.values() for t in part.values()
        )
        if self.most_bytes is not None and size > self.most_bytes:
            self.declined = (
                f"it takes {size / 2**20:,.0f} MB, and more than {self.most_bytes / 2**20:,.0f} MB are "
                "kept with --keep-model only"
            )
            self.file.delete()
            return
        self.declined = ""
        self.file.write(sections, {"epoch": epoch, **facts})
