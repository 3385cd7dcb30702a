"""The scores that a run stores, from which every metric and decision rule can be computed later."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ssmlbench.core.files import atomic, naming
from ssmlbench.protocol.decisions import RULES
from ssmlbench.runs.folder import RunFolder

if TYPE_CHECKING:
    import pandas as pd


SPARSE_ENTRIES = 2**22
"""The least entries (rows × labels) of a matrix that may be stored sparsely: smaller ones need not be."""


def _stored_scores(scores: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The arrays that store the scores: a matrix, or its non-zero values where these are far fewer.

    Nothing is rounded: neighbours and trees give most labels a score of exactly 0.
    """
    whole = np.ascontiguousarray(scores)
    if whole.size < SPARSE_ENTRIES or whole.dtype != np.float32:
        return {"scores": whole}
    given = whole.view(np.uint32) != 0  # by bits: -0.0 is kept
    values = np.count_nonzero(given)
    if 2 * (values * whole.itemsize + whole.size // 8) > whole.nbytes:
        return {"scores": whole}
    return {
        "scores_values": whole[given],
        "scores_given": np.packbits(given),
        "scores_shape": np.array(whole.shape),
    }


def _read_scores(stored: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """Take the scores, in either form, out of the stored arrays; a KeyError if there are none."""
    if "scores" in stored:
        return stored.pop("scores")
    values, bits = stored.pop("scores_values"), stored.pop("scores_given")
    rows, labels = map(int, stored.pop("scores_shape"))
    if len(bits) != (rows * labels + 7) // 8:  # else they would be filled up with zeros
        raise ValueError(f"{len(bits)} bytes for {rows} × {labels} bits")
    scores = np.zeros((rows, labels), dtype=np.float32)
    scores[np.unpackbits(bits, count=scores.size).view(np.bool_).reshape(scores.shape)] = values
    return scores


def _stored_truth(truth: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """The arrays that store the truth: a matrix, or each row's labels where that is much smaller."""
    counts = truth.sum(axis=1, dtype=np.int32)
    lists = 4 * (len(counts) + int(counts.sum()))
    if truth.size < SPARSE_ENTRIES or 2 * lists > truth.size:
        return {"truth": truth.astype(np.uint8)}
    labels = np.nonzero(truth)[1].astype(np.int32)
    return {"truth_labels": labels, "truth_counts": counts, "truth_shape": np.array(truth.shape)}


def _read_truth(stored: dict[str, NDArray[Any]], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Take the truth, in either form, out of the stored arrays; a KeyError if there is none.

    shape: of the scores. A ValueError if the truth has another one.
    """
    whole = stored.pop("truth", None)
    found = stored.pop("truth_shape") if whole is None else whole.shape
    if len(shape) != 2 or tuple(found) != shape:
        raise ValueError(f"scores of {shape}, labels of {tuple(found)}")
    if whole is not None:
        return np.asarray(whole == 1)
    labels, counts = stored.pop("truth_labels"), stored.pop("truth_counts")
    if counts.sum(dtype=np.int64) != len(labels):
        raise ValueError(f"{len(labels)} labels, counted as {counts.sum(dtype=np.int64)}")
    truth = np.zeros(shape, dtype=np.bool_)
    truth[np.repeat(np.arange(len(counts)), counts), labels] = True
    return truth


def _read_names(names: Any, shape: tuple[int, ...], file: Path) -> tuple[list[str], list[str]]:
    """The names of labels and the ids of rows; empty in older files, a ValueError if they are others."""
    if not isinstance(names, dict):
        raise ValueError(f"{file} has no names of labels and rows")
    labels, ids = names.get("labels") or [], names.get("ids") or []
    for found, expected in ((labels, shape[1]), (ids, shape[0])):
        if not isinstance(found, list) or len(found) not in (0, expected):
            raise ValueError(f"{file} has other names than those of its {expected} labels or rows")
    return labels, ids


@dataclass(frozen=True)
class StoredScores:
    """Test scores and truth (rows × labels), and the fitted parameters of the decision rules.

    Older runs did not store the names of labels and the ids of rows.
    """

    scores: NDArray[Any]
    truth: NDArray[np.bool_]
    parameters: dict[str, NDArray[Any]] = field(default_factory=dict)
    label_names: list[str] = field(default_factory=list)
    row_ids: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path | str) -> StoredScores:
        """The scores in a run's folder; an OSError or ValueError says what is wrong with them."""
        from safetensors import SafetensorError, safe_open
        from safetensors.numpy import load_file

        file = (folder := Path(folder)) / "scores.safetensors"
        if not file.exists():
            raise FileNotFoundError(2, "no such file", str(file))
        RunFolder(folder).verify(file.name)
        try:
            with naming(file):
                stored = load_file(file)
        except SafetensorError:
            raise ValueError(f"{file} is not a whole safetensors file") from None
        try:
            scores = _read_scores(stored)
            truth = _read_truth(stored, scores.shape)
        except KeyError:
            raise ValueError(f"{file} has no scores or no truth") from None
        except (IndexError, TypeError, ValueError) as error:
            raise ValueError(f"{file} has arrays that do not fit together ({error})") from None
        with naming(file), safe_open(file, framework="numpy") as opened:
            try:
                names = json.loads((opened.metadata() or {}).get("names", "{}"))
            except RecursionError:
                names = None
        return cls(scores, truth, stored, *_read_names(names, scores.shape, file))

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
            **_stored_scores(self.scores),
            **_stored_truth(self.truth),
            **self.parameters,
        }
        # One entry: several are written in random order, and equal runs would differ in their bytes.
        names = json.dumps({"labels": self.label_names, "ids": self.row_ids})
        with atomic(file) as unfinished:
            save_file(tensors, unfinished, metadata={"names": names})

    def lacking(self, rule: str) -> list[str]:
        """The parameters of a decision rule that were not stored: the run is older than the rule."""
        return [name for name in RULES[rule].parameters if name not in self.parameters]
