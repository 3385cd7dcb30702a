"""The scores a run stores: what every metric and decision rule can be computed from later."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssmlbench.core.files import atomic
from ssmlbench.protocol.decisions import RULES
from ssmlbench.runs.folder import RunFolder


@dataclass(frozen=True)
class StoredScores:
    """Test scores and truth (rows × labels), and the fitted parameters of the decision rules."""

    scores: NDArray[Any]
    truth: NDArray[np.bool_]
    parameters: dict[str, NDArray[Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> StoredScores:
        """The scores in a run's folder; an OSError or ValueError says what is wrong with them."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        file = folder / "scores.safetensors"
        if not file.exists():
            raise FileNotFoundError(2, "no such file", str(file))
        RunFolder(folder).verify(file.name)
        try:
            stored = load_file(file)
        except SafetensorError:
            raise ValueError(f"{file} is not a whole safetensors file") from None
        if not {"scores", "truth"} <= stored.keys():
            raise ValueError(f"{file} has no scores or no truth")
        return cls(stored.pop("scores"), stored.pop("truth") == 1, stored)

    def write(self, file: Path) -> None:
        """Write the file whole or not at all."""
        from safetensors.numpy import save_file

        tensors = {
            "scores": np.ascontiguousarray(self.scores),
            "truth": self.truth.astype(np.uint8),
            **self.parameters,
        }
        with atomic(file) as unfinished:
            save_file(tensors, unfinished)

    def lacking(self, rule: str) -> list[str]:
        """The parameters of a decision rule that were not stored: the run is older than the rule."""
        return [name for name in RULES[rule].parameters if name not in self.parameters]
