"""Logistic regression that is fitted again on class-proportional pseudo-labels, a few rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ssmlbench.api import Estimator, FeaturePool, between, choose_strength, fit_logistic, option

MOST_ENTRIES = 25_000_000
"""Rows × labels of both pools that a round fits in about half a minute of one core."""


class SelfTraining(Estimator):
    """Logistic regression on labelled rows and on its own class-proportional pseudo-labels.

    In each round the best-scored rows of a label become positive, as many as its labelled frequency
    says, and the worst-scored ones negative: CAP's class-aware labels for a linear model.
    """

    name = "self_training"
    paper = (
        "self-training (Scudder, 1965) with the class-aware labels of Xie et al., "
        "Class-Distribution-Aware Pseudo-Labeling, NeurIPS 2023"
    )
    uses = "both pools"
    differences = (
        "C is chosen once, by cross-validation on the labelled rows, as logistic chooses it",
        "ties are broken by the order of the rows, so that the counts are exact",
    )

    @dataclass(frozen=True)
    class Config(Estimator.Config):
        rounds: int = option(3, "how often pseudo-labels are made", search=between(1, 8))
        weight: float = option(
            1.0,
            "weight of a pseudo-labelled entry beside a labelled one",
            search=between(0.1, 1.0, log=True),
        )
        positive_share: float = option(
            1.0, "η⁺: part of each label's pseudo-positives that is used", search=between(0.5, 1.0)
        )
        negative_share: float = option(
            1.0, "η⁻: part of each label's pseudo-negatives that is used", search=between(0.5, 1.0)
        )
        strength: float | None = option(None, "C of every round; none: by cross-validation")

    @classmethod
    def most_labels_of(cls, config: Any, labelled: int, unlabelled: int) -> int:
        return MOST_ENTRIES // max(labelled + unlabelled, 1)

    def fit(self, labelled: FeaturePool, unlabelled: FeaturePool) -> None:
        config = self.config
        features, observed = labelled.features, labelled.observed
        strength = config.strength or choose_strength(features, observed, self.seed)
        self.model = fit_logistic(features, observed, strength)
        if not len(unlabelled):
            return
        both = np.concatenate([features, unlabelled.features])
        for _ in range(config.rounds):
            targets = self.pseudo_labels(self.model.scores(unlabelled.features), labelled.prior)
            trust = np.ones((len(both), self.labels), dtype=np.float32)
            trust[len(features) :] = config.weight
            self.model = fit_logistic(
                both, np.concatenate([observed, targets]), strength, trust, start=self.model
            )

    def pseudo_labels(self, scores: np.ndarray, prior: np.ndarray) -> np.ndarray:
        """N × K: 1 for the best rows of a label, 0 for the worst, -1 for those between."""
        rows = len(scores)
        place = np.argsort(np.argsort(-scores, axis=0, kind="stable"), axis=0)  # 0 is best
        positives = (self.config.positive_share * prior * rows).astype(int)
        negatives = (self.config.negative_share * (1 - prior) * rows).astype(int)
        targets = np.full(scores.shape, -1, dtype=np.int8)
        targets[place >= rows - negatives] = 0
        targets[place < positives] = 1
        return targets

    def scores(self, features: np.ndarray) -> np.ndarray:
        return self.model.scores(features)
