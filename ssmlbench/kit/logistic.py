"""L2-regularised logistic regression of all labels at once, and its strength by cross-validation.

The objective of each label is scikit-learn's; labels do not interact. One solver for all of them turns
many products of a matrix and a vector into a few products of matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ssmlbench.kit.classifiers import constant_scores, learnable_labels
from ssmlbench.kit.estimator import Features, Scores

Floats = npt.NDArray[np.floating]

STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""C, from the strongest regularisation to the weakest: the grid of the cross-validation."""
FOLDS, FEWER_FOLDS, MANY_ROWS = 5, 3, 2000
"""Folds of the cross-validation; FEWER_FOLDS from MANY_ROWS rows on."""
TOLERANCE = 1e-4
"""The largest gradient of the mean loss at which the solver stops: scikit-learn's default."""
MOST_ITERATIONS = 200
LABELS_TOGETHER = 256
"""Labels per call of the solver: memory grows with N × this, not with N × K."""
LABELS_COMPARED = 256
"""The cross-validation fits at most this many labels: more would hardly change the one strength."""


@dataclass(frozen=True)
class LogisticModel:
    """One linear function for each label, and a constant for labels that have one class only."""

    weights: Floats  # D × K
    intercepts: Floats  # K
    constant: Floats  # K
    learnt: npt.NDArray[np.bool_]  # K

    def some(self, labels: slice) -> LogisticModel:
        """The model of a slice of the labels."""
        parts = self.weights[:, labels], self.intercepts[labels], self.constant[labels]
        return LogisticModel(*parts, self.learnt[labels])

    def scores(self, features: Features) -> Scores:
        """N × K probabilities."""
        probabilities = _sigmoid(features @ self.weights + self.intercepts)
        return np.where(self.learnt, probabilities, self.constant)


def fit_logistic(
    features: Features,
    targets: npt.NDArray[np.int8],
    strength: float,
    trust: Floats | None = None,
    start: LogisticModel | None = None,
    tolerance: float = TOLERANCE,
) -> LogisticModel:
    """Minimise, for each label, |w|² / 2 + C Σ trust × loss; the intercept is not regularised.

    targets: N × K of 1, 0 and -1; entries of -1 are left out. strength: C.
    trust: N × K weights of the entries, None for 1. start: a model to start from.
    tolerance: the largest gradient of the mean loss at which the solver stops.
    """
    labels = targets.shape[1]
    if labels <= LABELS_TOGETHER:
        return _fitted_together(features, targets, strength, trust, start, tolerance)
    parts = []
    for first in range(0, labels, LABELS_TOGETHER):
        part = slice(first, first + LABELS_TOGETHER)
        weighed = None if trust is None else trust[:, part]
        before = None if start is None else start.some(part)
        parts.append(
            _fitted_together(features, targets[:, part], strength, weighed, before, tolerance)
        )
    return LogisticModel(
        np.concatenate([model.weights for model in parts], axis=1),
        *(
            np.concatenate([getattr(model, name) for model in parts])
            for name in ("intercepts", "constant", "learnt")
        ),
    )


def _fitted_together(
    features: Features,
    targets: npt.NDArray[np.int8],
    strength: float,
    trust: Floats | None,
    start: LogisticModel | None,
    tolerance: float,
) -> LogisticModel:
    """`fit_logistic` of all labels in one call of the solver."""
    from scipy.optimize import minimize

    known = targets >= 0 if trust is None else (targets >= 0) * trust
    weighed = np.where(known > 0, targets, -1)
    learnt = learnable_labels(weighed)
    constant = constant_scores(weighed)
    signs = np.where(targets[:, learnt] == 1, 1, -1).astype(features.dtype)
    entries = known[:, learnt].astype(features.dtype)
    rows, width = features.shape
    weights = np.zeros((width, len(learnt)))
    intercepts = np.zeros(len(learnt))
    count = int(learnt.sum())
    if count:
        penalty = 1 / (strength * rows)

        def objective(flat: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
            """The mean loss over rows, summed over labels, and its gradient."""
            both = flat.reshape(width + 1, count)
            linear = both[:-1].astype(features.dtype)
            margins = signs * (features @ linear + both[-1].astype(features.dtype))
            small = np.exp(-np.abs(margins))
            losses = np.maximum(-margins, 0) + np.log(1 + small)
            loss = float((entries * losses).sum(dtype=np.float64)) / rows
            slopes = -signs * entries * np.where(margins > 0, small, 1) / (1 + small) / rows
            gradient = np.empty_like(both)
            gradient[:-1] = features.T @ slopes + penalty * both[:-1]
            gradient[-1] = slopes.sum(axis=0, dtype=np.float64)
            return loss + penalty / 2 * float((both[:-1] ** 2).sum()), gradient.ravel()

        first = np.zeros((width + 1, count))
        share = (entries * (signs > 0)).sum(axis=0) / entries.sum(axis=0)
        first[-1] = np.log(share / (1 - share))
        if start is not None:
            first[:-1], first[-1] = start.weights[:, learnt], start.intercepts[learnt]
        options = {"maxiter": MOST_ITERATIONS, "gtol": tolerance, "ftol": 1e-10}
        found = minimize(objective, first.ravel(), jac=True, method="L-BFGS-B", options=options)
        both = found.x.reshape(width + 1, count)
        weights[:, learnt], intercepts[learnt] = both[:-1], both[-1]
    kind = features.dtype
    return LogisticModel(weights.astype(kind), intercepts.astype(kind), constant, learnt)


def choose_strength(
    features: Features,
    observed: npt.NDArray[np.int8],
    seed: int,
    strengths: Sequence[float] = STRENGTHS,
) -> float:
    """The C, one for all labels, with the least log loss in cross-validation.

    Each row is scored by a model that did not see it. (Average precision over the scores of several
    folds is unfair: a fold with more positives is scored by a model that saw fewer.) Labels with
    fewer than two positives are left out; of more than LABELS_COMPARED labels, a sample is used. Ties
    go to the stronger regularisation. With too few rows or positives it is the middle of the grid.
    """
    folds = FOLDS if len(features) < MANY_ROWS else FEWER_FOLDS
    judged = learnable_labels(observed) & ((observed == 1).sum(axis=0) >= 2)
    if len(features) < 2 * folds or not judged.any():
        return strengths[len(strengths) // 2]
    compared = np.flatnonzero(judged)
    if len(compared) > LABELS_COMPARED:
        drawn = np.random.RandomState(seed).permutation(len(compared))[:LABELS_COMPARED]
        compared = compared[np.sort(drawn)]
    observed = observed[:, compared]
    fold = np.random.RandomState(seed).permutation(len(features)) % folds
    losses = np.zeros(len(strengths))
    for held_out in range(folds):
        inside, outside = features[fold != held_out], features[fold == held_out]
        model = None
        for position, strength in enumerate(strengths):
            model = fit_logistic(inside, observed[fold != held_out], strength, start=model)
            losses[position] += _log_loss(model.scores(outside), observed[fold == held_out])
    return strengths[int(np.argmin(losses))]


def _log_loss(scores: Scores, observed: npt.NDArray[np.int8]) -> float:
    """The sum over known entries."""
    likelihood = np.where(observed == 1, scores, 1 - scores)[observed >= 0]
    return -float(np.log(np.maximum(likelihood, 1e-6, dtype=np.float64)).sum())


def _sigmoid(values: Floats) -> Floats:
    from scipy.special import expit

    return np.asarray(expit(values))
