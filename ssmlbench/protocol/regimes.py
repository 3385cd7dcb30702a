"""The regimes: which labels of which training rows are observed. One table, one entry for each.

A regime's number (π, a share) is the field of the run spec that names the regime; the spec declares
its option, symbol and bounds. To add a regime: an entry here, and its number, if it has one, there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssmlbench.core.errors import UserError

if TYPE_CHECKING:  # NumPy is imported in the draws: `--help` reads the names and needs no NumPy
    import numpy as np
    import numpy.typing as npt

    Labels = npt.NDArray[np.int8]
    RowIndex = npt.NDArray[np.int64]
    Prior = npt.NDArray[np.float64]

UNKNOWN = -1
"""The code of an unknown label; 1 is positive, 0 negative."""


@dataclass(frozen=True)
class Drawn:
    """One draw of a regime.

    labels      N × K int8, 1 / 0 / -1
    labelled    rows with known labels
    unlabelled  rows without a known label
    partly      rows with some known labels that are in neither pool yet: methods for partial labels
                learn from them, for other methods they are unlabelled; None: there are none
    """

    labels: Labels
    labelled: RowIndex
    unlabelled: RowIndex
    partly: RowIndex | None = None


@dataclass(frozen=True)
class Regime:
    """One way to turn the true labels into observed ones.

    draw        (true N × K labels, the regime's number, split, seed) → what is observed
    prior       (observed labels of the labelled rows, the regime's number) → K label frequencies
    splits_rows whether the number is the fraction of rows that are labelled; else every row is
    as_given    whether it takes labels as they are: unknown labels stay unknown, none is hidden
    """

    name: str
    text: str
    draw: Callable[[Labels, float, str, int], Drawn]
    prior: Callable[[Labels, float], Prior]
    splits_rows: bool = False
    as_given: bool = False

    @property
    def has_unlabelled_rows(self) -> bool:
        """Whether there may be rows without a known label."""
        return self.splits_rows or self.as_given

    def labelled_count(self, rows: int, number: float | None) -> int:
        """The number of labelled training rows."""
        return int(float(number or 0) * rows) if self.splits_rows else rows


# ---------------------------------------------------------------------------------------- draws


def _semi(truth: Labels, number: float, split: str, seed: int) -> Drawn:
    labelled, unlabelled = split_rows(truth, number, split, seed)
    labels = _nothing_known(truth)
    labels[labelled] = truth[labelled]
    return Drawn(labels, labelled, unlabelled)


def _full(truth: Labels, number: float, split: str, seed: int) -> Drawn:
    return _every_row(truth.copy())


def _single_positive(truth: Labels, number: float, split: str, seed: int) -> Drawn:
    """One positive of every row that has any, each equally likely."""
    import numpy as np

    random = np.random.RandomState(seed)
    keys = np.where(truth == 1, random.random_sample(truth.shape), -1.0)
    kept = np.zeros(truth.shape, dtype=bool)
    kept[np.arange(len(truth)), keys.argmax(axis=1)] = True
    labels = _nothing_known(truth)
    labels[kept & (truth == 1)] = 1
    return _every_row(labels)


def _single_positive_negatives(truth: Labels, number: float, split: str, seed: int) -> Drawn:
    """The positive that `single-positive` keeps at this seed, and every negative."""
    labels = _single_positive(truth, number, split, seed).labels
    labels[truth == 0] = 0
    return _every_row(labels)


def _partial(truth: Labels, number: float, split: str, seed: int) -> Drawn:
    import numpy as np

    kept = np.random.RandomState(seed).random_sample(truth.shape) < number
    return _every_row(np.where(kept, truth, UNKNOWN).astype(np.int8))


def _partial_positive(truth: Labels, number: float, split: str, seed: int) -> Drawn:
    """The positives that `partial` keeps at this seed and share."""
    labels = _partial(truth, number, split, seed).labels
    labels[labels == 0] = UNKNOWN
    return _every_row(labels)


def _given(truth: Labels, number: float, split: str, seed: int) -> Drawn:
    import numpy as np

    known = truth != UNKNOWN
    whole, some = known.all(axis=1), known.any(axis=1)
    parts = (np.flatnonzero(rows) for rows in (whole, ~some, some & ~whole))
    labelled, unlabelled, partly = parts
    check_given(len(labelled))
    return Drawn(truth.copy(), labelled, unlabelled, partly)


def _nothing_known(truth: Labels) -> Labels:
    import numpy as np

    return np.full(truth.shape, UNKNOWN, dtype=np.int8)


def _every_row(labels: Labels) -> Drawn:
    import numpy as np

    rows = np.arange(len(labels))
    return Drawn(labels, rows, rows[:0])


def check_share(pi: float, rows: int) -> None:
    """Raise a UserError if the share of the training rows is not one row."""
    if int(pi * rows) < 1:
        raise UserError(
            f"--pi {pi:g} of {rows} training rows is not one row; the least is {1 / rows:g}"
        )


def check_given(labelled: int) -> None:
    """Raise a UserError if no training row has all its labels known."""
    if not labelled:
        raise UserError(
            "--regime given: no training row has all its labels known; at least a few must"
        )


def split_rows(truth: Labels, pi: float, split: str, seed: int) -> tuple[RowIndex, RowIndex]:
    """Labelled and unlabelled rows. `random` is the papers' draw: the first rows of a permutation."""
    import numpy as np

    n = len(truth)
    check_share(pi, n)
    count = int(pi * n)
    if split == "random" or count == n:
        order = np.random.RandomState(seed).permutation(n)
        return order[:count], order[count:]
    from iterstrat.ml_stratifiers import MultilabelStratifiedShuffleSplit

    splitter = MultilabelStratifiedShuffleSplit(
        n_splits=1, train_size=count, test_size=n - count, random_state=seed
    )
    labelled, unlabelled = next(splitter.split(np.zeros((n, 1)), truth))
    return np.asarray(labelled), np.asarray(unlabelled)


# --------------------------------------------------------------------------------------- priors


def _among_known(labels: Labels, number: float) -> Prior:
    """Positives among the known entries of each label."""
    import numpy as np

    known = (labels != UNKNOWN).sum(axis=0)
    prior: Prior = (labels == 1).sum(axis=0) / np.maximum(known, 1)
    return prior


def _among_all_rows(labels: Labels, number: float) -> Prior:
    """Positives over all rows, since no negative is known: a lower bound of the true frequency."""
    prior: Prior = (labels == 1).sum(axis=0) / max(len(labels), 1)
    return prior


def _corrected_for_share(labels: Labels, number: float) -> Prior:
    """Positives over all rows, divided by the share of them that was kept."""
    import numpy as np

    return np.minimum(_among_all_rows(labels, number) / (number or 1.0), 1.0)


_ENTRIES = (
    Regime(
        "semi",
        "a fraction π of the rows is fully labelled, the rest not at all",
        _semi,
        _among_known,
        splits_rows=True,
    ),
    Regime(
        "single-positive",
        "every row keeps one of its positives; the rest is unknown",
        _single_positive,
        _among_all_rows,
    ),
    Regime(
        "single-positive-negatives",
        "every row keeps one of its positives and all negatives; other positives are unknown",
        _single_positive_negatives,
        _among_known,
    ),
    Regime(
        "partial-positive",
        "every positive is kept with probability share; the rest is unknown",
        _partial_positive,
        _corrected_for_share,
    ),
    Regime(
        "partial",
        "every entry, positive or negative, is kept with probability share; the rest is unknown",
        _partial,
        _among_known,
    ),
    Regime("full", "everything is known: the oracle", _full, _among_known),
    Regime(
        "given",
        "labels as they stand: nothing is hidden, unknown labels stay unknown",
        _given,
        _among_known,
        as_given=True,
    ),
)
REGIMES = {regime.name: regime for regime in _ENTRIES}
"""Every regime by its name."""
