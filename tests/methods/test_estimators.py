"""The built-in estimators against scikit-learn, brute force and hand computation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import LinearSVC

from ssmlbench.kit import logistic
from ssmlbench.kit.classifiers import MultiLabelEstimator, PerLabelEstimator
from ssmlbench.kit.estimator import Estimator, FeaturePool
from ssmlbench.kit.logistic import STRENGTHS, choose_strength, fit_logistic
from ssmlbench.plugins.loader import Plugins

PLUGINS = Plugins()


def pool(rows: int = 80, labels: int = 4, width: int = 6, seed: int = 0) -> FeaturePool:
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, width))
    slopes = random.normal(size=(width, labels))
    observed = (features @ slopes + random.normal(size=(rows, labels)) > 1).astype(np.int8)
    return FeaturePool(features, observed, observed.mean(axis=0))


def hidden(known: FeaturePool) -> FeaturePool:
    """The pool without its labels."""
    return FeaturePool(known.features, np.full_like(known.observed, -1), known.prior)


def build(name: str, labels: int = 4, **config: Any) -> Estimator:
    cls = PLUGINS.methods[name]
    assert issubclass(cls, Estimator)
    return cls(cls.Config(**config), labels, 0)


def test_prior_is_the_labelled_frequency() -> None:
    observed = np.array([[1, 0], [1, 0], [0, 0], [0, 1]], dtype=np.int8)
    labelled = FeaturePool(np.zeros((4, 1)), observed, np.array([0.5, 0.25]))
    prior = build("prior", 2)
    prior.fit(labelled, hidden(labelled))
    assert prior.scores(np.ones((3, 1))).tolist() == [[0.5, 0.25]] * 3


# ------------------------------------------------------------------------------- logistic


@pytest.mark.parametrize("strength", [1e-3, 0.1, 10.0])
def test_logistic_is_scikit_learns_for_every_label(strength: float) -> None:
    labelled, test = pool(), pool(seed=1).features
    found = fit_logistic(labelled.features, labelled.observed, strength, tolerance=1e-9)
    for k in range(4):
        theirs = LogisticRegression(C=strength, tol=1e-9, max_iter=2000)
        theirs.fit(labelled.features, labelled.observed[:, k])
        expected = theirs.predict_proba(test)[:, 1]
        np.testing.assert_allclose(found.scores(test)[:, k], expected, atol=1e-5)


def test_weights_and_unknown_entries_are_scikit_learns_sample_weights() -> None:
    labelled, test = pool(), pool(seed=1).features
    random = np.random.default_rng(2)
    trust = random.uniform(0.1, 1, labelled.observed.shape)
    targets = np.where(random.random(trust.shape) < 0.3, -1, labelled.observed).astype(np.int8)
    found = fit_logistic(labelled.features, targets, 0.5, trust, tolerance=1e-9)
    for k in range(4):
        rows = targets[:, k] >= 0
        theirs = LogisticRegression(C=0.5, tol=1e-9, max_iter=2000)
        theirs.fit(labelled.features[rows], targets[rows, k], sample_weight=trust[rows, k])
        expected = theirs.predict_proba(test)[:, 1]
        np.testing.assert_allclose(found.scores(test)[:, k], expected, atol=1e-5)


def test_logistic_with_a_named_strength_in_single_precision() -> None:
    labelled, test = pool(), pool(seed=1).features.astype(np.float32)
    single = FeaturePool(labelled.features.astype(np.float32), labelled.observed, labelled.prior)
    logistic = build("logistic", strength=0.1)
    logistic.fit(single, hidden(single))
    theirs = LogisticRegression(C=0.1).fit(labelled.features, labelled.observed[:, 2])
    np.testing.assert_allclose(
        logistic.scores(test)[:, 2], theirs.predict_proba(test)[:, 1], atol=5e-3
    )


def test_a_label_of_one_class_has_a_constant_score() -> None:
    labelled = pool()
    labelled.observed[:, 0], labelled.observed[:, 1] = 0, 1
    scores = fit_logistic(labelled.features, labelled.observed, 1.0).scores(labelled.features)
    assert (scores[:, 0] == 0).all()
    assert (scores[:, 1] == 1).all()
    assert np.unique(scores[:, 2]).size > 2


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_regularised_as_strongly_as_can_be(seed: int) -> None:
    # Ranked over all folds together, models of the strongest regularisation look worse than chance:
    # a fold with more positives is scored by a model that saw fewer.
    random = np.random.default_rng(seed)
    features = random.normal(size=(60, 40))
    observed = (random.random((60, 6)) < 0.4).astype(np.int8)
    assert choose_strength(features, observed, seed) <= 1e-3


def test_the_strength_is_that_of_the_least_held_out_loss() -> None:
    # Noise in many columns needs strong regularisation, one clean column needs none.
    random = np.random.default_rng(0)
    clean = random.normal(size=(200, 1))
    observed = (clean > 0.5).astype(np.int8)
    noisy = np.hstack([0.3 * clean, random.normal(size=(200, 150))])
    assert choose_strength(noisy, observed, 0) < 0.1
    # Two labels of which one is nearly constant: nothing to choose by, so the middle of the grid.
    assert choose_strength(clean[:6], observed[:6], 0) == STRENGTHS[len(STRENGTHS) // 2]
    lonely = np.zeros((200, 1), dtype=np.int8)
    lonely[0] = 1
    assert choose_strength(noisy, lonely, 0) == STRENGTHS[len(STRENGTHS) // 2]


def test_many_labels_are_fitted_in_parts_that_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labelled, test = pool(labels=7), pool(labels=7, seed=1).features
    trust = np.random.default_rng(2).uniform(0.5, 1, labelled.observed.shape)
    start = fit_logistic(labelled.features, labelled.observed, 0.01)
    known = (labelled.features, labelled.observed, 0.5, trust, start, 1e-9)
    together = fit_logistic(*known).scores(test)
    monkeypatch.setattr(logistic, "LABELS_TOGETHER", 3)
    np.testing.assert_allclose(fit_logistic(*known).scores(test), together, atol=1e-5)


def test_of_many_labels_some_choose_the_strength(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def fit(features: Any, targets: Any, *rest: Any, **options: Any) -> Any:
        seen.append(targets.shape[1])
        return fit_logistic(features, targets, *rest, **options)

    monkeypatch.setattr(logistic, "fit_logistic", fit)
    monkeypatch.setattr(logistic, "LABELS_COMPARED", 3)
    labelled = pool(labels=7)
    assert choose_strength(labelled.features, labelled.observed, 0) in STRENGTHS
    assert set(seen) == {3}


# ------------------------------------------------------------------------------- self-training


def test_pseudo_labels_are_the_best_and_the_worst_rows_of_each_label() -> None:
    scores = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.3], [0.3, 0.3], [0.2, 0.9]])
    made = build("self_training", 2)
    # int(0.4 · 5) = 2 positives and int(0.6 · 5) = 3 negatives; int(0.5 · 5) = 2 of each
    found = made.pseudo_labels(scores, np.array([0.4, 0.5]))  # type: ignore[attr-defined]
    assert found.T.tolist() == [[1, 1, 0, 0, 0], [0, 0, 1, -1, 1]]


def test_one_round_is_logistic_regression_on_both_pools() -> None:
    labelled, unlabelled, test = pool(40), pool(60, seed=3), pool(seed=1).features
    labelled = FeaturePool(labelled.features, labelled.observed, labelled.observed.mean(axis=0))
    made = build("self_training", rounds=1, weight=0.5, strength=0.1)
    made.fit(labelled, hidden(unlabelled))
    both = np.concatenate([labelled.features, unlabelled.features])
    for k in range(4):
        teacher = LogisticRegression(C=0.1, tol=1e-8).fit(
            labelled.features, labelled.observed[:, k]
        )
        scores = teacher.predict_proba(unlabelled.features)[:, 1]
        positives = int(labelled.prior[k] * 60)
        targets = np.zeros(60)
        targets[np.argsort(-scores)[:positives]] = 1
        student = LogisticRegression(C=0.1, tol=1e-8).fit(
            both,
            np.concatenate([labelled.observed[:, k], targets]),
            sample_weight=np.repeat([1.0, 0.5], [40, 60]),
        )
        np.testing.assert_allclose(
            made.scores(test)[:, k], student.predict_proba(test)[:, 1], atol=5e-3
        )


def test_the_second_forest_learns_the_scores_of_the_first() -> None:
    labelled, unlabelled, test = pool(40), hidden(pool(60, seed=3)), pool(seed=1).features
    made = build("self_training_forest", count=10, weight=0.5, min_leaf=2, rows=30)
    made.fit(labelled, unlabelled)
    first = ExtraTreesRegressor(10, max_features="sqrt", random_state=0)
    first.fit(labelled.features, labelled.observed)
    drawn = unlabelled.features[np.random.RandomState(0).permutation(60)[:30]]
    second = ExtraTreesRegressor(10, max_features="sqrt", min_samples_leaf=2, random_state=1)
    second.fit(
        np.concatenate([labelled.features, drawn]),
        np.concatenate([labelled.observed, first.predict(drawn)]),
        np.repeat([1.0, 0.5], [40, 30]),
    )
    np.testing.assert_allclose(made.scores(test), second.predict(test), rtol=1e-12)


def test_a_forest_keeps_the_entries_that_are_known() -> None:
    labelled, partly = pool(40), pool(20, seed=3)
    observed = np.where(np.arange(4) < 2, 1, -1) * np.ones((20, 1))
    unlabelled = FeaturePool(partly.features, observed.astype(np.int8), partly.prior)
    made = build("self_training_forest", count=20, weight=1.0, min_leaf=1)
    made.fit(labelled, unlabelled)
    assert (
        made.scores(partly.features)[:, :2].min() == 1
    )  # extra trees fit every row that they were given


def test_a_forest_without_a_wholly_labelled_row_scores_the_prior() -> None:
    known = pool(10)
    made = build("self_training_forest")
    made.fit(hidden(known), hidden(known))
    assert made.scores(known.features).tolist() == [known.prior.tolist()] * 10


# ------------------------------------------------------------------------------- neighbours


def brute_force_ml_knn(
    train: np.ndarray, labels: np.ndarray, test: np.ndarray, k: int, s: float
) -> np.ndarray:
    """ML-kNN as in the paper's Figure 1, with loops."""
    rows, count = labels.shape

    def neighbours(row: np.ndarray, without: int | None) -> list[int]:
        order = np.argsort(((train - row) ** 2).sum(axis=1), kind="stable")
        return [i for i in order if i != without][:k]

    scores = np.zeros((len(test), count))
    for label in range(count):
        prior = (s + labels[:, label].sum()) / (2 * s + rows)
        with_label, without_label = np.zeros(k + 1), np.zeros(k + 1)
        for i in range(rows):
            near = sum(labels[j, label] for j in neighbours(train[i], i))
            (with_label if labels[i, label] else without_label)[near] += 1
        for t, row in enumerate(test):
            near = sum(labels[j, label] for j in neighbours(row, None))
            positive = prior * (s + with_label[near]) / (s * (k + 1) + with_label.sum())
            negative = (1 - prior) * (s + without_label[near]) / (s * (k + 1) + without_label.sum())
            scores[t, label] = positive / (positive + negative)
    return scores


def test_knn_is_brute_force_ml_knn() -> None:
    labelled, test = pool(40, 3), pool(15, 3, seed=1).features
    found = build("knn", 3, neighbours=5, smoothing=0.7)
    found.fit(labelled, hidden(labelled))
    expected = brute_force_ml_knn(labelled.features, labelled.observed, test, 5, 0.7)
    np.testing.assert_allclose(found.scores(test), expected, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.2, 0.9])
def test_label_spreading_is_scikit_learns_on_the_same_graph(alpha: float) -> None:
    labelled, unlabelled, test = pool(30), pool(60, seed=3), pool(20, seed=1).features
    found = build("label_spreading", neighbours=6, alpha=alpha, iterations=3000, tolerance=1e-12)
    found.fit(labelled, hidden(unlabelled))
    both = np.concatenate([labelled.features, unlabelled.features])
    distances = ((both[:, None] - both) ** 2).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    near = np.zeros((90, 90))
    np.put_along_axis(near, np.argsort(distances, axis=1)[:, :6], 1.0, axis=1)
    weights = np.maximum(near, near.T)
    for k in range(4):
        theirs = LabelSpreading(kernel=lambda x, y: weights, alpha=alpha, max_iter=3000, tol=1e-12)
        theirs.fit(both, np.concatenate([labelled.observed[:, k], np.full(60, -1)]))
        spread = theirs.label_distributions_[:, 1]
        np.testing.assert_allclose(found.spread[:, k], spread, atol=1e-8)  # type: ignore[attr-defined]
        nearest = np.argsort(((test[:, None] - both) ** 2).sum(axis=2), axis=1)[:, :6]
        np.testing.assert_allclose(
            found.scores(test)[:, k], spread[nearest].mean(axis=1), atol=1e-8
        )


# ------------------------------------------------------------------------------- classifiers


@pytest.mark.parametrize(
    ("trees", "theirs"), [("random", RandomForestClassifier), ("extra", ExtraTreesClassifier)]
)
def test_forest_is_scikit_learns_on_all_labels(trees: str, theirs: type[Any]) -> None:
    labelled, test = pool(), pool(seed=1).features
    found = build("forest", trees=trees, count=20)
    found.fit(labelled, hidden(labelled))
    expected = theirs(20, random_state=0).fit(labelled.features, labelled.observed)
    np.testing.assert_array_equal(
        found.scores(test), np.stack([p[:, 1] for p in expected.predict_proba(test)], axis=1)
    )


def test_forest_takes_the_kind_of_trees_that_ranks_held_out_rows_better() -> None:
    labelled = pool(200)
    found = build("forest", count=30)
    found.fit(labelled, hidden(labelled))
    order = np.random.RandomState(0).permutation(200)
    held_out, inside = order[:50], order[50:]
    from sklearn.metrics import average_precision_score

    values = {}
    for name, kind in (("random", RandomForestClassifier), ("extra", ExtraTreesClassifier)):
        model = kind(30, random_state=0).fit(labelled.features[inside], labelled.observed[inside])
        scores = [p[:, 1] for p in model.predict_proba(labelled.features[held_out])]
        values[name] = np.mean(
            [average_precision_score(labelled.observed[held_out, k], scores[k]) for k in range(4)]
        )
    assert found.kind == max(values, key=lambda name: values[name])  # type: ignore[attr-defined]


def test_any_classifier_for_each_label_is_a_few_lines() -> None:
    class Bayes(PerLabelEstimator):
        name = "bayes"

        def classifier(self) -> Any:
            return GaussianNB()

    class Margins(PerLabelEstimator):
        name = "margins"

        def classifier(self) -> Any:
            return LinearSVC(random_state=self.seed)

    labelled, test = pool(), pool(seed=1).features
    labelled.observed[:, 3] = 0
    for cls in (Bayes, Margins):
        found = cls(cls.Config(), 4, 0)
        found.fit(labelled, hidden(labelled))
        scores = found.scores(test)
        theirs = found.classifier().fit(labelled.features, labelled.observed[:, 1])
        if cls is Bayes:
            expected = theirs.predict_proba(test)[:, 1]
        else:
            expected = 1 / (1 + np.exp(-theirs.decision_function(test)))
        np.testing.assert_allclose(scores[:, 1], expected)
        assert (scores[:, 3] == 0).all()


@pytest.mark.parametrize("learnable", [0, 1, 2, 4])
@pytest.mark.parametrize(
    "classifier",
    [
        lambda: KNeighborsClassifier(3),
        lambda: MLPClassifier((4,), max_iter=5, random_state=0),
        lambda: RandomForestClassifier(5, random_state=0),
    ],
)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_a_classifier_for_all_labels_whichever_way_it_returns_them(
    classifier: Any, learnable: int
) -> None:
    class Native(MultiLabelEstimator):
        name = "native"

        def classifier(self) -> Any:
            return classifier()

    labelled, test = pool(), pool(seed=1).features
    labelled.observed[:, learnable:] = 0
    found = Native(Native.Config(), 4, 0)
    found.fit(labelled, hidden(labelled))
    scores = found.scores(test)
    assert scores.shape == (80, 4)
    assert (scores[:, learnable:] == 0).all()
    if learnable:
        targets = labelled.observed[:, :learnable]
        targets = targets[:, 0] if learnable == 1 else targets
        theirs = classifier().fit(labelled.features, targets).predict_proba(test)
        if isinstance(theirs, list):
            theirs = np.stack([label[:, 1] for label in theirs], axis=1)
        elif learnable == 1:
            theirs = theirs[:, 1:]
        np.testing.assert_array_equal(scores[:, :learnable], theirs)
