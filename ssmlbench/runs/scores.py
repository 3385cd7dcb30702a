"""The scores a run stores: what every metric and decision rule can be computed from later."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ssmlbench.core.files import atomic
from ssmlbench.protocol.decisions import RULES
from ssmlbench.runs.folder import RunFolder

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class StoredScores:
    """Test scores and truth (rows × labels), and the fitted parameters of the decision rules.

    Runs made before they were stored have no names of labels and ids of rows.
    """

    scores: NDArray[Any]
    truth: NDArray[np.bool_]
    parameters: dict[str, NDArray[Any]] = field(default_factory=dict)
    label_names: list[str] = field(default_factory=list)
    row_ids: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> StoredScores:
        """The scores in a run's folder; an OSError or ValueError says what is wrong with them."""
        from safetensors import SafetensorError, safe_open
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
        with safe_open(file, framework="numpy") as opened:
            names = json.loads((opened.metadata() or {}).get("names", "{}"))
        labels, ids = names.get("labels", []), names.get("ids", [])
        return cls(stored.pop("scores"), stored.pop("truth") == 1, stored, labels, ids)

    def to_pandas(self) -> pd.DataFrame:
        """The scores as a table: a row for each row of the test set, a column for each label."""
        import pandas as pd

        return pd.DataFrame(
            self.scores, index=self.row_ids or None, columns=self.label_names or None
        )

    def write(self, file: Path) -> None:
        """Write the file whole or not at all."""
        from safetensors.numpy import save_file

        tensors = {
            "scores": np.ascontiguousarray(self.scores),
            "truth": self.truth.astype(np.uint8),
            **self.parameters,
        }
        # One entry: several are written in random order, and equal runs would differ in their bytes.
        names = json.dumps({"labels": self.label_names, "ids": self.row_ids})
        with atomic(file) as unfinished:
            save_file(tensors, unfinished, metadata={"names": names})

    def lacking(self, rule: str) -> list[str]:
        """The parameters of a decision rule that were not stored: the run is older than the rule."""
        return [name for name in RULES[rule].parameters if name not in self.parameters]
