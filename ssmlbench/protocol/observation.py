"""The observation: which labels of which training rows a method may see.

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
from ssmlbench.protocol.regimes import REGIMES, UNKNOWN

VALIDATION_SHARE = 0.2
"""The share of the labelled rows that `--selection val` and `tune` hold out (the papers: 20 %)."""

Labels = npt.NDArray[np.int8]
RowIndex = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Observation:
    """The observed labels of the training rows, and the rows of each pool.

    labels      N × K int8, 1 / 0 / -1
    labelled    rows with known labels (in `semi`: fully labelled; elsewhere every row)
    unlabelled  rows without a known label
    validation  rows held out of `labelled` for `--selection val` or to judge a trial, else empty
    prior       K, the share of positives among the known labels
    judged      rows of the fold that the run is judged on, in no pool; empty without `--folds`
    """

    labels: Labels
    labelled: RowIndex
    unlabelled: RowIndex
    validation: RowIndex
    prior: npt.NDArray[np.float64]
    judged: RowIndex

    @property
    def digest(self) -> str:
        """A hash over the row indices and the observed labels: runs with equal hashes saw the same data."""
        parts: list[npt.NDArray[Any]] = [
            self.labelled,
            self.unlabelled,
            self.validation,
            self.judged,
            self.labels,
        ]
        digest = hashlib.sha256()
        for part in parts:
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()[:12]

    @property
    def labels_without_positive(self) -> RowIndex:
        """Labels with no known positive among the labelled rows: no method can learn them."""
        return np.flatnonzero(~(self.labels[self.labelled] == 1).any(axis=0))


def observe(truth: Labels, spec: RunSpec) -> Observation:
    """The observation of `spec`'s regime, split and seed on the true N × K labels."""
    regime, number = REGIMES[spec.regime], float(spec.regime_number or 0)
    drawn = regime.draw(truth, number, spec.split, spec.seed)
    labels, unlabelled, judged = drawn.labels, drawn.unlabelled, drawn.labelled[:0]
    labelled, validation = drawn.labelled, drawn.labelled[:0]
    if spec.folds:
        labelled, judged = _fold(labels, labelled, spec)
    if spec.selection == "val" or spec.judged_on == "held-out":
        labelled, validation = _hold_out(labelled, spec.seed)
    if drawn.partly is not None and spec.partial_labels:
        labelled = np.concatenate([labelled, drawn.partly])
    elif drawn.partly is not None:
        labels[drawn.partly] = UNKNOWN
        unlabelled = np.concatenate([unlabelled, drawn.partly])
    prior = regime.prior(labels[labelled], number)
    return Observation(labels, labelled, unlabelled, validation, prior, judged)


def check_folds(folds: int, labelled: int) -> None:
    """Raise a UserError if the rows whose labels are all known are too few for the folds."""
    if labelled < 2 * folds:
        raise UserError(
            f"--folds {folds}: {labelled} rows have all their labels known, and a fold needs two; "
            "label more rows, or take fewer folds"
        )


def _fold(labels: Labels, labelled: RowIndex, spec: RunSpec) -> tuple[RowIndex, RowIndex]:
    """The rows to learn from, and those of the fold that the seed names.

    Seeds and folds are one axis: of k folds, seeds 0 to k - 1 are the folds of one shuffle of the
    labelled rows, seeds k to 2k - 1 those of another.
    """
    folds = spec.folds or 0
    check_folds(folds, len(labelled))
    shuffle, fold = divmod(spec.seed, folds)
    if spec.split == "stratified":
        from iterstrat.ml_stratifiers import MultilabelStratifiedKFold

        splitter = MultilabelStratifiedKFold(n_splits=folds, shuffle=True, random_state=shuffle)
        parts = splitter.split(np.zeros((len(labelled), 1)), labels[labelled])
        inside, outside = list(parts)[fold]
        return labelled[inside], labelled[outside]
    order = np.random.RandomState([shuffle, 2]).permutation(len(labelled))
    outside = np.sort(order[fold::folds])
    return np.delete(labelled, outside), labelled[outside]


def check_held_out(labelled: int) -> int:
    """The number of labelled rows that are held out; a UserError if none would be left."""
    count = max(1, round(VALIDATION_SHARE * labelled))
    if count >= labelled:
        raise UserError(
            "--selection val and tune hold out labelled rows and need at least 2, there are "
            f"{labelled}; raise --pi"
        )
    return count


def _hold_out(labelled: RowIndex, seed: int) -> tuple[RowIndex, RowIndex]:
    order = np.random.RandomState([seed, 1]).permutation(len(labelled))
    count = check_held_out(len(labelled))
    return labelled[order[count:]], labelled[order[:count]]
