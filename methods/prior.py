"""Each label's frequency as the score of every row: the floor of a board."""

from __future__ import annotations

import numpy as np

from ssmlbench.api import Estimator, FeaturePool


class Prior(Estimator):
    """The labelled frequency of each label as the score of every row: what a learner must beat."""

    name = "prior"
    paper = "the trivial baseline"
    uses = "labelled rows"

    def fit(self, labelled: FeaturePool, unlabelled: FeaturePool) -> None:
        self.prior = labelled.prior

    def scores(self, features: np.ndarray) -> np.ndarray:
        return np.tile(self.prior, (len(features), 1))
