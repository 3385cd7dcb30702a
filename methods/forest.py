"""A forest of randomised trees that takes all labels at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from ssmlbench.api import (
    FeaturePool,
    MultiLabelEstimator,
    average_precision,
    between,
    labels_that_fit,
    option,
)

KINDS = {"random": RandomForestClassifier, "extra": ExtraTreesClassifier}


class Forest(MultiLabelEstimator):
    """A random forest or extremely randomised trees, whichever ranks held-out labelled rows better."""

    name = "forest"
    paper = "Breiman, Random Forests, 2001; Geurts et al., Extremely randomized trees, 2006"
    uses = "labelled rows"
    scaled = False
    differences = (
        "trees=auto fits both kinds on 75 % of the labelled rows, compares their mean AP on the "
        "rest, and fits the better one on all labelled rows",
        "a tree has all labels in its leaves",
        "reads unscaled features: trees need no scaling, and scaling rows to one length costs information",
    )

    @dataclass(frozen=True)
    class Config(MultiLabelEstimator.Config):
        trees: Literal["auto", "random", "extra"] = option("auto", "kind of trees")
        count: int = option(300, "number of trees")
        min_leaf: int = option(1, "least rows in a leaf", search=between(1, 16, log=True))
        columns: float | None = option(None, "share of the columns that a split looks at; none: √D")

    @classmethod
    def most_labels_of(cls, config: Any, labelled: int, unlabelled: int) -> int:
        # two numbers for each label in each leaf and node
        bytes_of_a_label = 16 * config.count * max(2 * labelled // config.min_leaf, 1)
        return labels_that_fit(bytes_of_a_label)

    def fit(self, labelled: FeaturePool, unlabelled: FeaturePool) -> None:
        self.kind = self.config.trees if self.config.trees != "auto" else self.better(labelled)
        super().fit(labelled, unlabelled)

    def better(self, labelled: FeaturePool) -> str:
        """The kind of trees with the better mean AP on labelled rows that are held out."""
        order = np.random.RandomState(self.seed).permutation(len(labelled))
        held_out, inside = np.split(order, [len(order) // 4])
        truth = labelled.observed[held_out] == 1
        if not truth.any():
            return "random"
        part = FeaturePool(labelled.features[inside], labelled.observed[inside], labelled.prior)
        values = {}
        for kind in KINDS:
            self.kind = kind
            super().fit(part, part)
            scores = self.scores(labelled.features[held_out])
            values[kind] = np.nanmean(average_precision(scores, truth))
        return max(values, key=lambda kind: values[kind])

    def classifier(self) -> Any:
        return KINDS[self.kind](
            self.config.count,
            min_samples_leaf=self.config.min_leaf,
            max_features=self.config.columns or "sqrt",
            random_state=self.seed,
        )
