"""Every built-in estimator passes `ssmlbench check`; broken ones do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ssmlbench.checks import estimators as conformance
from ssmlbench.checks.estimators import Broken, cases, declares_itself, scores_of, spec_for
from ssmlbench.checks.toy import toy
from ssmlbench.cli.check import check_plugins
from ssmlbench.cli.templates import write_plugin
from ssmlbench.core.console import Console
from ssmlbench.core.errors import RunFailed, UserError
from ssmlbench.core.hyperparameters import option
from ssmlbench.kit.estimator import Estimator, FeaturePool
from ssmlbench.plugins.loader import Plugins

LEARNERS = {name: Plugins().methods[name] for name in Plugins().methods}
ESTIMATORS = {name: cls for name, cls in LEARNERS.items() if issubclass(cls, Estimator)}


class SmallForest(ESTIMATORS["forest"]):  # type: ignore[misc]
    """The forest with few trees, which saves seconds."""

    name = "forest"

    @dataclass(frozen=True)
    class Config(ESTIMATORS["forest"].Config):  # type: ignore[misc, name-defined]
        count: int = option(8, "number of trees")


CASES = [
    pytest.param(cls, check, regime, id=f"{name}-{check.__name__}-{regime}")
    for name, cls in {**ESTIMATORS, "forest": SmallForest}.items()
    for _, check, regime in cases(cls)
]


def test_the_built_in_estimators() -> None:
    assert set(ESTIMATORS) == {
        "prior",
        "logistic",
        "forest",
        "knn",
        "label_spreading",
        "self_training",
        "self_training_forest",
    }


@pytest.mark.parametrize("cls", ESTIMATORS.values(), ids=ESTIMATORS)
def test_an_estimator_declares_itself(cls: type[Estimator]) -> None:
    declares_itself(cls)
    assert cls.paper
    assert cls.__doc__


@pytest.mark.parametrize(("cls", "check", "regime"), CASES)
def test_every_estimator_conforms(
    cls: type[Estimator], check: Callable[..., None], regime: str
) -> None:
    check(cls, regime)


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "prior"])
def test_an_estimator_learns(name: str) -> None:
    data, cls = toy("vector"), ESTIMATORS[name]
    scores = scores_of(cls, data, spec_for(cls, "semi"))
    positive = data.test_truth == 1
    # `prior` gives a label's positives and negatives the same score.
    assert scores[positive].mean() > scores[~positive].mean() + 0.1


def test_a_new_estimator_works_as_written(tmp_path: Path) -> None:
    file = write_plugin("estimator", "my-estimator", tmp_path)
    cls = Plugins([file]).methods["my-estimator"]
    assert issubclass(cls, Estimator)
    for statement in conformance.estimator_statements(cls):
        statement.check()
    with pytest.raises(UserError, match="exists"):
        write_plugin("estimator", "my-estimator", tmp_path)


def test_check_takes_the_name_of_an_estimator() -> None:
    console = Console(record=True, width=200)
    assert check_plugins("prior", console)
    assert "unlabelled rows change its scores if it says that it uses them" in console.export_text()


class _Simple(Estimator):
    name = "simple"

    def fit(self, labelled: FeaturePool, unlabelled: FeaturePool) -> None:
        self.prior = labelled.prior

    def scores(self, features: Any) -> Any:
        return np.tile(self.prior, (len(features), 1))


class DrawsElsewhere(_Simple):
    def scores(self, features: Any) -> Any:
        return np.random.default_rng().random((len(features), self.labels))


class ClaimsBothPools(_Simple):
    uses = "both pools"


class DiesWithoutPositives(_Simple):
    def fit(self, labelled: FeaturePool, unlabelled: FeaturePool) -> None:
        assert (labelled.observed == 1).any(axis=0).all()
        super().fit(labelled, unlabelled)


class DiesWithoutUnlabelled(_Simple):
    uses = "both pools"

    def fit(self, labelled: FeaturePool, unlabelled: FeaturePool) -> None:
        self.prior = np.clip(unlabelled.features[0, : self.labels] * 0, 0, 1)


@pytest.mark.parametrize(
    ("cls", "check"),
    [
        (DrawsElsewhere, conformance.repeats_itself),
        (ClaimsBothPools, conformance.uses_what_it_declares),
    ],
)
def test_a_broken_estimator_is_caught(cls: type[Estimator], check: Callable[..., None]) -> None:
    with pytest.raises(Broken):
        check(cls, "semi")


@pytest.mark.parametrize("cls", [DiesWithoutPositives, DiesWithoutUnlabelled])
def test_an_estimator_that_thin_data_ends_is_caught(cls: type[Estimator]) -> None:
    with pytest.raises((AssertionError, IndexError)):
        conformance.handles_few_rows(cls, "semi")


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        (lambda f: np.full((len(f), 5), 1.5), "not all numbers"),
        (lambda f: np.full((len(f), 5), np.nan), "not all numbers"),
        (lambda f: np.zeros(len(f)), "shape"),
    ],
)
def test_scores_that_are_no_scores_end_the_run_with_a_reason(
    scores: Callable[..., Any], reason: str
) -> None:
    class Outside(_Simple):
        def scores(self, features: Any) -> Any:
            return scores(features)

    with pytest.raises(RunFailed, match=reason):
        conformance.fits(Outside, "semi")


def test_uses_must_be_one_of_two() -> None:
    class Vague(_Simple):
        uses = "rows"  # type: ignore[assignment]

    with pytest.raises(UserError, match="uses is 'rows'; expected one of 'labelled rows'"):
        declares_itself(Vague)


def test_with_labelled_rows_the_unlabelled_pool_is_empty() -> None:
    sizes = []

    class Counts(_Simple):
        def fit(self, labelled: FeaturePool, unlabelled: FeaturePool) -> None:
            sizes.append((len(labelled), len(unlabelled), unlabelled.features.shape[1]))
            assert (unlabelled.observed == -1).all()
            super().fit(labelled, unlabelled)

    class CountsBoth(Counts):
        uses = "both pools"

    for cls in (Counts, CountsBoth):
        scores_of(cls, toy("vector"), spec_for(cls, "semi", pi=0.25))
    assert sizes == [(18, 0, 12), (18, 54, 12)]


def test_an_estimator_that_finds_the_sealed_truth_is_caught(
    leaked_truths: list[np.ndarray],
) -> None:
    class Peeks(_Simple):
        def scores(self, features: Any) -> Any:
            return np.tile(leaked_truths[-1].mean(axis=0), (len(features), 1))

    with pytest.raises(Broken, match="must not know"):
        conformance.never_sees_hidden_labels(Peeks, "semi")
