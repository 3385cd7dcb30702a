"""ML-kNN: a label's probability given how many of a row's nearest labelled rows have it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.neighbors import NearestNeighbors

from ssmlbench.api import Estimator, FeaturePool, between, option


class Knn(Estimator):
    """ML-kNN: counts of a label among the k nearest labelled rows, turned into its probability."""

    name = "knn"
    paper = "Zhang & Zhou, ML-kNN: A lazy learning approach to multi-label learning, 2007"
    uses = "labelled rows"
    differences = ("with fewer than k + 1 labelled rows, k is their number less one",)

    @dataclass(frozen=True)
    class Config(Estimator.Config):
        neighbours: int = option(10, "k: neighbours of a row", search=between(3, 50, log=True))
        smoothing: float = option(1.0, "s: Laplace smoothing", search=between(0.1, 2.0, log=True))

    def fit(self, labelled: FeaturePool, unlabelled: FeaturePool) -> None:
        observed, smoothing = (labelled.observed == 1).astype(np.int64), self.config.smoothing
        self.observed = observed
        rows = len(observed)
        self.k = min(self.config.neighbours, rows - 1)
        prior = (smoothing + observed.sum(axis=0)) / (2 * smoothing + rows)  # P(H1)
        # c: rows with (and without) the label whose neighbours have it 0 … k times.
        counts = np.zeros((2, self.k + 1, self.labels))
        if self.k:
            self.nearest = NearestNeighbors(n_neighbors=self.k).fit(labelled.features)
            near = self.nearest.kneighbors_graph() @ observed
            for count in range(self.k + 1):
                counts[1, count] = ((near == count) & (observed == 1)).sum(axis=0)
                counts[0, count] = ((near == count) & (observed == 0)).sum(axis=0)
        totals = counts.sum(axis=1, keepdims=True)
        likelihood = (smoothing + counts) / (smoothing * (self.k + 1) + totals)  # P(E | H)
        positive, negative = prior * likelihood[1], (1 - prior) * likelihood[0]
        self.table = positive / (positive + negative)  # (k + 1) × K

    def scores(self, features: np.ndarray) -> np.ndarray:
        near = np.zeros((len(features), self.labels), dtype=np.int64)
        if self.k and len(features):
            near = (self.nearest.kneighbors_graph(features) @ self.observed).astype(np.int64)
        return np.take_along_axis(self.table, near, axis=0)
