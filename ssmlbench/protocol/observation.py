"""The protocol: which labels of which training rows a method may see, and what stays sealed.

Observed labels are one int8 matrix: 1 positive, 0 negative, -1 unknown. Every regime is a way of
turning the true matrix into that one; nothing downstream knows the regime.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import RunSpec

UNKNOWN = -1
VALIDATION_SHARE = 0.2
"""The part of the labelled rows that `--selection val` and `tune` hold out (the papers: 20 %)."""

Labels = npt.NDArray[np.int8]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Observation:
    """What may be known about the training rows.

    labels      N × K int8, 1 / 0 / -1
    labelled    rows with known labels (in `semi`: fully labelled; elsewhere every row)
    unlabelled  rows about which nothing is known
    validation  rows held out of `labelled` for `--selection val` or to judge a trial, else empty
    prior       K, the share of positives among the known labels
    """

    labels: Labels
    labelled: Rows
    unlabelled: Rows
    validation: Rows
    prior: npt.NDArray[np.float64]

    @property
    def digest(self) -> str:
        """A hash over the row indices and the observed labels: two runs with it saw the same."""
        parts: list[npt.NDArray[Any]] = [
            self.labelled,
            self.unlabelled,
            self.validation,
            self.labels,
        ]
        return hashlib.sha256(b"".join(p.tobytes() for p in parts)).hexdigest()[:12]

    @property
    def labels_without_positive(self) -> Rows:
        """Labels with no known positive among the labelled rows: nothing can be learnt of them."""
        return np.flatnonzero(~(self.labels[self.labelled] == 1).any(axis=0))


def observe(truth: Labels, spec: RunSpec) -> Observation:
    """The observation of `spec`'s regime, split and seed on the true N × K labels."""
    random = np.random.RandomState(spec.seed)
    labels = np.full(truth.shape, UNKNOWN, dtype=np.int8)
    rows = np.arange(len(truth))
    if spec.regime == "semi":
        labelled, unlabelled = split_rows(truth, float(spec.pi or 0), spec.split, spec.seed)
        labels[labelled] = truth[labelled]
    else:
        labelled, unlabelled = rows, rows[:0]
        if spec.regime == "full":
            labels[:] = truth
        elif spec.regime == "single-positive":
            labels[_one_positive(truth, random)] = 1
        else:
            labels[(truth == 1) & (random.random_sample(truth.shape) < float(spec.share or 0))] = 1
    validation = rows[:0]
    if spec.selection == "val" or spec.judged_on == "held-out":
        labelled, validation = _hold_out(labelled, spec.seed)
    return Observation(
        labels, labelled, unlabelled, validation, _prior(labels[labelled], spec.share)
    )


def split_rows(truth: Labels, pi: float, split: str, seed: int) -> tuple[Rows, Rows]:
    """Labelled and unlabelled rows. `random` is the papers' draw: the head of a permutation."""
    n = len(truth)
    count = int(pi * n)
    if count < 1:
        raise UserError(f"--pi {pi:g} of {n} training rows is not one row; the least is {1 / n:g}")
    if split == "random" or count == n:
        order = np.random.RandomState(seed).permutation(n)
        return order[:count], order[count:]
    from iterstrat.ml_stratifiers import MultilabelStratifiedShuffleSplit

    splitter = MultilabelStratifiedShuffleSplit(
        n_splits=1, train_size=count, test_size=n - count, random_state=seed
    )
    labelled, unlabelled = next(splitter.split(np.zeros((n, 1)), truth))
    return np.asarray(labelled), np.asarray(unlabelled)


def _one_positive(truth: Labels, random: np.random.RandomState) -> npt.NDArray[np.bool_]:
    """A mask with one positive of every row that has any, each equally likely."""
    keys = np.where(truth == 1, random.random_sample(truth.shape), -1.0)
    mask = np.zeros(truth.shape, dtype=bool)
    mask[np.arange(len(truth)), keys.argmax(axis=1)] = True
    return mask & (truth == 1)


def _hold_out(labelled: Rows, seed: int) -> tuple[Rows, Rows]:
    order = np.random.RandomState([seed, 1]).permutation(len(labelled))
    count = max(1, round(VALIDATION_SHARE * len(labelled)))
    if count >= len(labelled):
        raise UserError(
            "--selection val and tune hold out labelled rows and need at least 2, there are "
            f"{len(labelled)}; raise --pi"
        )
    return labelled[order[count:]], labelled[order[:count]]


def _prior(labels: Labels, share: float | None) -> npt.NDArray[np.float64]:
    """Positives among the known entries of each label.

    Where no negative is known at all (single- and partial-positive) that would be 1: there the
    observed positives are counted over all rows instead, divided by the share that was kept when
    the protocol tells it. For single-positive this is a lower bound of the true frequency.
    """
    positives = (labels == 1).sum(axis=0)
    if (labels == 0).any():
        known = (labels != UNKNOWN).sum(axis=0)
        return positives / np.maximum(known, 1)
    return np.minimum(positives / max(len(labels), 1) / (share or 1.0), 1.0)
