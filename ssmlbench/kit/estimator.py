"""The estimator contract: a learner that fits fixed features in one call. Free of torch.

It is the smaller contract beside Method, for data whose inputs are vectors and for `--freeze`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

Features = npt.NDArray[np.floating[Any]]
Scores = npt.NDArray[np.floating[Any]]
Uses = Literal["labelled rows", "both pools"]

MOST_BYTES = 16 * 2**30
MANY_LABELS, MANY_LABELS_BYTES = 1000, 2 * 2**30
"""What a fitted model may take; above so many labels every learner takes two gigabytes, or refuses."""


@dataclass(frozen=True)
class FeaturePool:
    """Training rows as an estimator gets them.

    features  N × D float32, scaled as `--scaling` says unless the estimator declines
    observed  N × K int8: 1 positive, 0 negative, -1 unknown (all of the unlabelled pool)
    prior     K, the share of positives among the labelled rows' known labels (the same in both pools)
    """

    features: Features
    observed: npt.NDArray[np.int8]
    prior: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.features)


class Estimator:
    """A learner that fits fixed features in one call: `fit` once, then `scores`."""

    name: ClassVar[str]
    paper: ClassVar[str] = ""  # authors, title, venue
    differences: ClassVar[tuple[str, ...]] = ()  # where the paper and this file differ
    regimes: ClassVar[frozenset[str] | set[str]] = frozenset({"semi", "full"})
    # With "labelled rows", `fit` gets an unlabelled pool of no rows.
    uses: ClassVar[Uses] = "labelled rows"
    scaled: ClassVar[bool] = True  # False: unscaled features, whatever --scaling says

    @dataclass(frozen=True)
    class Config:
        """Hyper-parameters, each with a default: `ssmlbench run --set name=value` changes one."""

    def __init__(self, config: Any, labels: int, seed: int):
        """seed: for everything that is drawn, e.g. as scikit-learn's `random_state`."""
        self.config = config
        self.labels = labels  # K
        self.seed = seed

    @classmethod
    def most_labels_of(cls, config: Any, labelled: int, unlabelled: int) -> int | None:
        """The most labels that it can handle with these numbers of rows in its pools; None: no limit.

        A data set with more is refused before anything is computed.
        """
        return None

    def fit(self, labelled: FeaturePool, unlabelled: FeaturePool) -> None:
        """Learn from the training rows."""
        raise NotImplementedError(f"{type(self).__name__} must define fit")

    def scores(self, features: Features) -> Scores:
        """Scores in [0, 1] of rows with these features: N × D → N × K."""
        raise NotImplementedError(f"{type(self).__name__} must define scores")


def labels_that_fit(bytes_of_a_label: int) -> int:
    """For `most_labels_of`: the most labels of a learner whose model takes so much memory for each."""
    many = max(MANY_LABELS, MANY_LABELS_BYTES // bytes_of_a_label)
    return int(min(MOST_BYTES // bytes_of_a_label, many))
