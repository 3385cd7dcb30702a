"""Label spreading over a graph of nearest neighbours of both pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from ssmlbench.api import Estimator, FeaturePool, between, option

MOST_ENTRIES = 25_000_000
"""The most rows × labels: 77 bytes per entry then fit in 2 GB."""


class LabelSpreading(Estimator):
    """Labels spread along a graph that joins each row of both pools with its nearest neighbours."""

    name = "label_spreading"
    paper = "Zhou et al., Learning with Local and Global Consistency, NeurIPS 2003"
    uses = "both pools"
    differences = (
        "a graph of nearest neighbours, two rows joined if either is near the other, instead of the "
        "paper's dense Gaussian one: memory grows with N × k",
        "each label is spread as two classes; its score is the positive part of what reaches a row",
        "a row outside the graph has the mean of its nearest neighbours in it",
    )

    @dataclass(frozen=True)
    class Config(Estimator.Config):
        neighbours: int = option(10, "k: neighbours of a row", search=between(3, 50, log=True))
        alpha: float = option(
            0.9, "α: how much a row takes from its neighbours", search=between(0.1, 0.99)
        )
        iterations: int = option(100, "most iterations")
        tolerance: float = option(1e-4, "largest change at which the iteration ends")

    @classmethod
    def most_labels_of(cls, config: Any, labelled: int, unlabelled: int) -> int:
        return MOST_ENTRIES // max(labelled + unlabelled, 1)

    def fit(self, labelled: FeaturePool, unlabelled: FeaturePool) -> None:
        features = np.concatenate([labelled.features, unlabelled.features])
        self.prior = labelled.prior
        self.k = min(self.config.neighbours, len(features) - 1)
        self.spread = np.tile(self.prior, (len(features), 1))
        known = labelled.observed >= 0
        if not self.k:
            self.spread[: len(labelled)] = np.where(known, labelled.observed, self.prior)
            return
        self.nearest = NearestNeighbors(n_neighbors=self.k).fit(features)
        step = self.transition()
        # Columns: positives of each label, then known entries of each label.
        start = np.zeros((len(features), 2 * self.labels))
        start[: len(labelled)] = np.hstack([labelled.observed == 1, known])
        alpha = self.config.alpha
        reached = start
        for _ in range(self.config.iterations):
            before, reached = reached, alpha * (step @ reached) + (1 - alpha) * start
            if np.abs(reached - before).max() < self.config.tolerance:
                break
        positive, mass = np.split(reached, 2, axis=1)
        np.divide(positive, mass, out=self.spread, where=mass > 0)

    def transition(self) -> sparse.csr_array:
        """D^-1/2 W D^-1/2, with W = 1 where two rows are neighbours."""
        near = sparse.csr_array(self.nearest.kneighbors_graph())
        weights = near.maximum(near.T)
        scale = sparse.diags_array(1 / np.sqrt(weights.sum(axis=1)))
        return (scale @ weights @ scale).tocsr()

    def scores(self, features: np.ndarray) -> np.ndarray:
        if not self.k or not len(features):
            return np.tile(self.spread[0], (len(features), 1))
        return np.asarray(self.nearest.kneighbors_graph(features) @ self.spread / self.k)
