"""A prepared data set: Arrow files read through memory maps, and the card that describes them.

It holds raw inputs and true labels; prepare.py writes it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ssmlbench.data.adapter import SPLITS, Kind
from ssmlbench.protocol.observation import Labels


@dataclass(frozen=True)
class Card:
    """The description of a prepared task."""

    name: str
    kind: Kind
    version: int
    label_names: list[str]
    rows: dict[str, int]
    positives: dict[str, list[int]]  # by split, of each label
    fingerprint: str  # of names, inputs and labels: the same on every machine
    flips: bool
    licence: str = ""
    citation: str = ""
    notes: list[str] = field(default_factory=list)
    source: str = ""  # the raw folder or the hub revision it was made from
    skipped: dict[str, int] = field(default_factory=dict)  # bad rows left out, by kind of fault

    def mean_labels(self, *splits: str) -> float:
        """Positive labels of a row, on average over the splits named (all if none is)."""
        chosen = splits or SPLITS
        return sum(sum(self.positives[s]) for s in chosen) / sum(self.rows[s] for s in chosen)

    @property
    def density(self) -> float:
        """The share of positive entries in the label matrix."""
        return self.mean_labels() / len(self.label_names)


class Task:
    """A prepared data set: Arrow files on disk, read through memory maps."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.card = Card(**json.loads((folder / "card.json").read_text(encoding="utf-8")))

    @property
    def label_count(self) -> int:
        """K."""
        return len(self.card.label_names)

    @cached_property
    def _splits(self) -> dict[str, Any]:
        import datasets

        return {s: datasets.Dataset.from_file(str(self.folder / f"{s}.arrow")) for s in SPLITS}

    def truth(self, split: str) -> Labels:
        """The true labels, N × K int8. The runner seals the training part; methods get none."""
        lists = self._splits[split].data["labels"].combine_chunks()
        offsets, positions = np.asarray(lists.offsets), np.asarray(lists.flatten())
        labels = np.zeros((len(lists), self.label_count), dtype=np.int8)
        row_of = np.repeat(np.arange(len(lists)), np.diff(offsets))
        labels[row_of, positions] = 1
        return labels

    def inputs(self, split: str) -> Any:
        """The raw inputs of a split, as Hugging Face hands them out in NumPy form."""
        return self._splits[split].with_format("numpy")["input"]

    def back_translations(self, split: str) -> Any | None:
        """The texts of a split, translated to another language and back, where it has them."""
        if "back_translation" not in self._splits[split].column_names:
            return None
        return self._splits[split].with_format("numpy")["back_translation"]
