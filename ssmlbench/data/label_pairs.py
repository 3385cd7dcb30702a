"""Counts of pairs of labels in a data set, and of labels per row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ssmlbench.protocol.observation import Labels

BLOCK_ROWS = 65_536
"""Rows that are counted at a time."""


@dataclass(frozen=True)
class LabelPair:
    """Two labels, by position, and the rows that have both."""

    first: int  # the more frequent one
    second: int
    rows: int
    share: float  # the share of the second one's rows that have the first one too
    lift: float  # how many times as often as if the labels were independent


def label_pairs(truth: Labels, most: int) -> list[LabelPair]:
    """The pairs of labels that most rows have, over the rows that are fully labelled.

    truth: N × K, 1 positive, 0 negative, -1 unknown.
    """
    known = truth[(truth >= 0).all(axis=1)]
    labels = truth.shape[1]
    together = np.zeros((labels, labels), dtype=np.float64)
    for start in range(0, len(known), BLOCK_ROWS):
        block = known[start : start + BLOCK_ROWS].astype(np.float32)
        together += block.T @ block
    alone = together.diagonal()
    rows, columns = np.triu_indices(labels, k=1)
    counts = together[rows, columns]
    order = np.argsort(-counts, kind="stable")[:most]
    pairs = []
    for a, b, count in zip(rows[order], columns[order], counts[order], strict=True):
        if not count:
            break
        first, second = sorted((int(a), int(b)), key=lambda k: (-alone[k], k))
        lift = count * len(known) / (alone[a] * alone[b])
        pairs.append(LabelPair(first, second, int(count), count / alone[second], float(lift)))
    return pairs


def labels_per_row(truth: Labels) -> dict[int, int]:
    """Number of positive labels → rows that have so many, over the rows that are fully labelled."""
    known = truth[(truth >= 0).all(axis=1)]
    counts = np.bincount((known == 1).sum(axis=1)) if len(known) else np.zeros(0, dtype=int)
    return {number: int(rows) for number, rows in enumerate(counts) if rows}
