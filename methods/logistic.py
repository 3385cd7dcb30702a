"""Logistic regression on the labelled rows: a linear baseline with a strength that fits the data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ssmlbench.api import Estimator, FeaturePool, choose_strength, fit_logistic, option


class Logistic(Estimator):
    """L2-regularised logistic regression on the labelled rows; its strength by cross-validation."""

    name = "logistic"
    paper = "Cox, The regression analysis of binary sequences, JRSS B 1958"
    uses = "labelled rows"
    differences = (
        "one strength C for all labels: the least log loss over 5 folds of the labelled rows, 3 from 2,000 "
        "rows on; with more than 256 labels, 256 are drawn for it",
        "a label with one known class has a constant score",
    )

    @dataclass(frozen=True)
    class Config(Estimator.Config):
        strength: float | None = option(
            None, "C: inverse L2 strength of every label; none: chosen by cross-validation"
        )

    def fit(self, labelled: FeaturePool, unlabelled: FeaturePool) -> None:
        features, observed = labelled.features, labelled.observed
        strength = self.config.strength or choose_strength(features, observed, self.seed)
        self.model = fit_logistic(features, observed, strength)

    def scores(self, features: np.ndarray) -> np.ndarray:
        return self.model.scores(features)
