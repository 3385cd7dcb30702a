"""The file of a run's diagnostics, which the judge recorded during training, for `ssmlbench analyse`.

Runs made before this file existed have none; analyses that need it say so.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ssmlbench.core.errors import DamagedFile
from ssmlbench.core.files import atomic
from ssmlbench.runs.folder import MAKES_AGAIN, RunFolder

FILE = "diagnostics.safetensors"
SAMPLE_FILE = "features.safetensors"
"""The sampled rows from which the last diagnostics were computed: `run --keep-features`."""


@dataclass(frozen=True)
class Diagnostics:
    """Arrays by name (see protocol/diagnostics.py), and the names of the labels."""

    arrays: dict[str, NDArray[Any]]
    label_names: list[str]

    @classmethod
    def read(cls, folder: Path) -> Diagnostics | None:
        """The diagnostics in a run's folder, None if there are none; DamagedFile if they changed."""
        from safetensors import SafetensorError, safe_open

        if not os.path.lexists(folder / FILE):
            return None
        RunFolder(folder).verify(FILE)
        try:
            with safe_open(folder / FILE, framework="numpy") as stored:
                arrays = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118
                names = json.loads((stored.metadata() or {}).get("label_names", "[]"))
        except (OSError, SafetensorError, ValueError, RecursionError):
            raise DamagedFile(
                folder / FILE, "it is not a whole safetensors file", MAKES_AGAIN
            ) from None
        if not isinstance(names, list):
            raise DamagedFile(folder / FILE, "it has no list of label names", MAKES_AGAIN)
        return cls(arrays, list(map(str, names)))

    def write(self, folder: Path, name: str = FILE) -> None:
        """Write the file whole or not at all."""
        from safetensors.numpy import save_file

        arrays = {name: np.ascontiguousarray(value) for name, value in self.arrays.items()}
        with atomic(folder / name) as unfinished:
            save_file(arrays, unfinished, {"label_names": json.dumps(self.label_names)})

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]

    def __contains__(self, name: object) -> bool:
        return name in self.arrays
