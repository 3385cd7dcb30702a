"""Estimators around scikit-learn's classifiers: one for each label, or one for all labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ssmlbench.kit.estimator import Estimator, FeaturePool, Features, Scores

Known = npt.NDArray[np.int8]


def constant_scores(observed: Known) -> npt.NDArray[np.float64]:
    """K: the share of positives among the known entries of each label, 0 where none is known."""
    positives: npt.NDArray[np.float64] = (observed == 1).sum(axis=0) / np.maximum(
        (observed >= 0).sum(axis=0), 1
    )
    return positives


def learnable_labels(observed: Known) -> npt.NDArray[np.bool_]:
    """K: which labels have a known positive and a known negative."""
    learnable: npt.NDArray[np.bool_] = (observed == 1).any(axis=0) & (observed == 0).any(axis=0)
    return learnable


class PerLabelEstimator(Estimator):
    """One binary classifier for each label, fitted on the rows where the label is known.

    A label with one known class has that class as a constant score.
    """

    def classifier(self) -> Any:
        """A new binary classifier of scikit-learn's interface; `self.seed` is its random_state."""
        raise NotImplementedError(f"{type(self).__name__} must define classifier")

    def fit(self, labelled: FeaturePool, unlabelled: FeaturePool) -> None:
        """Fit a classifier for each label that has both classes."""
        self.constant = constant_scores(labelled.observed)
        self.fitted: dict[int, Any] = {}
        for label in np.flatnonzero(learnable_labels(labelled.observed)):
            rows = labelled.observed[:, label] >= 0
            targets = labelled.observed[rows, label]
            self.fitted[int(label)] = self.classifier().fit(labelled.features[rows], targets)

    def scores(self, features: Features) -> Scores:
        """The classifiers' probabilities; where one has none, the sigmoid of its margins."""
        scores = np.tile(self.constant, (len(features), 1))
        for label, classifier in self.fitted.items():
            if hasattr(classifier, "predict_proba"):
                scores[:, label] = classifier.predict_proba(features)[:, 1]
            else:
                margins = np.clip(classifier.decision_function(features), -500, 500)
                scores[:, label] = 1 / (1 + np.exp(-margins))
        return scores


class MultiLabelEstimator(Estimator):
    """One classifier that takes all labels at once, fitted on the rows whose labels are all known.

    A label with one known class has that class as a constant score.
    """

    def classifier(self) -> Any:
        """A new classifier that takes an N × K matrix of labels; `self.seed` is its random_state."""
        raise NotImplementedError(f"{type(self).__name__} must define classifier")

    def fit(self, labelled: FeaturePool, unlabelled: FeaturePool) -> None:
        """Fit the classifier on the labels that have both classes."""
        rows = (labelled.observed >= 0).all(axis=1)
        observed = labelled.observed[rows]
        self.constant = constant_scores(observed)
        self.learnt = np.flatnonzero(learnable_labels(observed))
        self.fitted = None
        if len(self.learnt):
            targets = observed[:, self.learnt]
            # scikit-learn takes a single label as a vector.
            self.fitted = self.classifier().fit(
                labelled.features[rows], targets if len(self.learnt) > 1 else targets[:, 0]
            )

    def scores(self, features: Features) -> Scores:
        """The classifier's probabilities."""
        scores = np.tile(self.constant, (len(features), 1))
        if self.fitted is not None and len(features):
            scores[:, self.learnt] = positive_probabilities(self.fitted, features, len(self.learnt))
        return scores


def positive_probabilities(classifier: Any, features: Features, labels: int) -> Scores:
    """The N × `labels` probabilities of a fitted classifier, whichever way it returns them."""
    found = classifier.predict_proba(features)
    if isinstance(found, list):  # one N × 2 array for each label
        return np.stack([label[:, 1] for label in found], axis=1)
    return np.asarray(found)[:, 1:] if labels == 1 else np.asarray(found)
