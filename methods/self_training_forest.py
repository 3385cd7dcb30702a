"""A forest that is fitted again on both pools, with its own scores as the labels of unlabelled rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from ssmlbench.api import Estimator, FeaturePool, between, labels_that_fit, option


class SelfTrainingForest(Estimator):
    """Extremely randomised trees on labelled rows, then on both pools with the first forest's scores.

    The second forest splits on the features of many more rows: its scores are smoother where labelled
    rows are few.
    """

    name = "self_training_forest"
    paper = (
        "self-training (Scudder, 1965) of Geurts et al., Extremely randomized trees, 2006, with soft "
        "labels as in Hinton et al., Distilling the Knowledge in a Neural Network, 2015"
    )
    uses = "both pools"
    scaled = False
    differences = (
        "targets are soft: a regression forest learns scores, so that nothing has to be thresholded",
        "entries that are known keep their labels; the first forest fills in the others",
        "reads unscaled features: trees need no scaling",
    )

    @dataclass(frozen=True)
    class Config(Estimator.Config):
        count: int = option(200, "number of trees of each forest")
        weight: float = option(
            0.1,
            "weight of an unlabelled row beside a labelled one",
            search=between(0.01, 1.0, log=True),
        )
        min_leaf: int = option(
            5, "least rows in a leaf of the second forest", search=between(1, 16, log=True)
        )
        rows: int = option(10_000, "most unlabelled rows that are used, drawn by the seed")

    @classmethod
    def most_labels_of(cls, config: Any, labelled: int, unlabelled: int) -> int:
        drawn = min(unlabelled, config.rows)
        leaves = max(labelled, (labelled + drawn) // config.min_leaf, 1)
        # a number for each label in each leaf and node
        bytes_of_a_label = 8 * config.count * 2 * leaves
        return labels_that_fit(bytes_of_a_label)

    def fit(self, labelled: FeaturePool, unlabelled: FeaturePool) -> None:
        drawn = np.random.RandomState(self.seed).permutation(len(unlabelled))[: self.config.rows]
        features = np.concatenate([labelled.features, unlabelled.features[drawn]])
        observed = np.concatenate([labelled.observed, unlabelled.observed[drawn]])
        whole = (observed >= 0).all(axis=1)
        self.prior, self.model = labelled.prior, None
        if not whole.any():
            return  # no row says which labels go together: the prior is all there is
        self.model = self.forest(1, self.seed).fit(features[whole], observed[whole])
        if not whole.all():
            targets = np.where(observed >= 0, observed, self.scores(features))
            weights = np.where(whole, 1.0, self.config.weight)
            second = self.forest(self.config.min_leaf, self.seed + 1)
            self.model = second.fit(features, targets, weights)

    def forest(self, min_leaf: int, seed: int) -> ExtraTreesRegressor:
        """A new forest that takes the scores of all labels at once."""
        return ExtraTreesRegressor(
            self.config.count,
            min_samples_leaf=min_leaf,
            max_features="sqrt",
            random_state=seed,
        )

    def scores(self, features: np.ndarray) -> np.ndarray:
        if self.model is None or not len(features):
            return np.tile(self.prior, (len(features), 1))
        found = np.asarray(self.model.predict(features))  # a vector where there is one label
        return found.reshape(len(features), self.labels).clip(0, 1)
