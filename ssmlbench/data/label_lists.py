"""The labels of a row as one list of numbers: the form in which they are stored and fingerprinted.

A positive label is its position k, an unknown one is -(k + 1), a negative one is not in the list.
None stands for a row about which nothing is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ssmlbench.protocol.regimes import UNKNOWN

LabelList = list[int] | None
KEYS = 65_521
"""Sets of labels are told apart by a number below this one."""
Knowledge = Literal["labelled", "partly labelled", "unlabelled"]


def label_list(
    positive: Iterable[int] | None, unknown: Iterable[int], label_count: int
) -> LabelList:
    """The list of a row; a ValueError for a position outside 0..K-1 or one that is in both."""
    if positive is None:
        return None
    known = sorted({int(k) for k in positive})
    open_ = sorted({int(k) for k in unknown})
    for k in (*known, *open_):
        if not 0 <= k < label_count:
            raise ValueError(f"label position {k} outside 0..{label_count - 1}")
    if both := set(known) & set(open_):
        raise ValueError(f"label position {min(both)} is both positive and unknown")
    if len(open_) == label_count:
        return None
    return [*known, *(-(k + 1) for k in open_)]


def knowledge(labels: LabelList) -> Knowledge:
    """Whether a row is labelled, partly labelled or unlabelled."""
    if labels is None:
        return "unlabelled"
    return "partly labelled" if any(k < 0 for k in labels) else "labelled"


class LabelCounts:
    """Rows by how much is known about them, and the positives of each label."""

    def __init__(self, label_count: int):
        self.label_count = label_count
        self.rows: Counter[Knowledge] = Counter()
        self.positives = [0] * label_count
        self.unknown = 0  # entries of the label matrix
        self.negatives = 0
        self.repeated = 0  # rows with the labels of the row before
        self._sets: Counter[int] = Counter()
        self._last: int | None = None

    def add(self, labels: LabelList) -> None:
        """Count one row."""
        self.rows[knowledge(labels)] += 1
        if labels is None:
            self.unknown += self.label_count
            self._last = None
            return
        key = hash(tuple(labels)) % KEYS
        self.repeated += key == self._last
        self._sets[key] += 1
        self._last = key
        self.negatives += self.label_count - len(labels)
        for k in labels:
            if k >= 0:
                self.positives[k] += 1
            else:
                self.unknown += 1

    @property
    def sorted_by_label(self) -> float:
        """0 for rows in random order, 1 for rows that are sorted by their labels, or nearly so."""
        pairs = self._sets.total() - 1
        by_chance = sum(n * (n - 1) for n in self._sets.values()) / max(pairs * (pairs + 1), 1)
        most = pairs - len(self._sets) + 1  # rows that are sorted
        return (self.repeated - by_chance * pairs) / max(most - by_chance * pairs, 1.0)


def label_matrix(lists: Any, label_count: int) -> npt.NDArray[np.int8]:
    """An Arrow column of label lists → N × K int8: 1 positive, 0 negative, -1 unknown."""
    lengths = np.asarray(lists.value_lengths().fill_null(0))
    entries = np.asarray(lists.flatten())
    labels = np.zeros((len(lists), label_count), dtype=np.int8)
    if lists.null_count:
        labels[np.asarray(lists.is_null())] = UNKNOWN
    row_of = np.repeat(np.arange(len(lists)), lengths)
    positive = entries >= 0
    labels[row_of[positive], entries[positive]] = 1
    if not positive.all():
        labels[row_of[~positive], -(entries[~positive] + 1)] = UNKNOWN
    return labels
