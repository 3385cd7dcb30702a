# ruff: noqa: E501 (one line for each mistake)
"""Each mistake in an estimator is one line of `ssmlbench check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.plugin_mistakes import assert_one_line, checked, mistaken

ESTIMATOR = '''
from dataclasses import dataclass

import numpy as np

from ssmlbench.api import Estimator, option


class Mine(Estimator):
    """Mine."""

    name = "mine"
    regimes = {"semi"}
    uses = "labelled rows"

    @dataclass(frozen=True)
    class Config(Estimator.Config):
        alpha: float = option(1.0, "α: strength")

    def __init__(self, config, labels, seed):
        super().__init__(config, labels, seed)
        self.random = np.random.default_rng(seed)

    def fit(self, labelled, unlabelled):
        self.prior = labelled.prior * self.config.alpha

    def scores(self, features):
        return np.tile(self.prior, (len(features), 1))
'''

# fmt: off
ESTIMATOR_MISTAKES = {
    "fit-misspelt": ("def train(self, labelled, unlabelled):  #!", "def fit(self, labelled, unlabelled):", "Did you mean fit?"),
    "predict": ("def predict_proba(self, features):  #!", "def scores(self, features):", "Did you mean scores?"),
    "uses-misspelt": ('uses = "labeled rows"  #!', 'uses = "labelled rows"', "Did you mean labelled rows?"),
    "unknown-regime": ('regimes = {"ful"}  #!', 'regimes = {"semi"}', "Did you mean full?"),
    "config-no-dataclass": ("    class Config(Estimator.Config):  #!", "    @dataclass(frozen=True)\n    class Config(Estimator.Config):", "write @dataclass(frozen=True) above it"),
    "fit-of-sklearn": ("def fit(self, features):  #!", "def fit(self, labelled, unlabelled):", "expected (self, labelled, unlabelled)"),
    "init": ("def __init__(self, config, labels):  #!\n        seed = 0", "def __init__(self, config, labels, seed):", "expected (self, config, labels, seed)"),
    "pool-misspelt": ("self.prior = labelled.priors * self.config.alpha  #!", "self.prior = labelled.prior * self.config.alpha", "Did you mean prior?"),
    "scores-outside": ("return 5 * np.tile(self.prior, (len(features), 1))", "return np.tile(self.prior, (len(features), 1))", "not all numbers in [0, 1]", "def scores("),
    "scores-of-one-row": ("return self.prior", "return np.tile(self.prior, (len(features), 1))", "scores of mine have shape (5,)", "def scores("),
    "scores-nothing": ("np.tile(self.prior, (len(features), 1))", "return np.tile(self.prior, (len(features), 1))", "scores of mine are None: does the function return them?", "def scores("),
    "unseeded": ("return np.random.rand(len(features), self.labels)  #!", "return np.tile(self.prior, (len(features), 1))", "draws from NumPy's generator, which the run does not seed; draw from self.seed"),
}
# fmt: on


@pytest.mark.parametrize("mistake", ESTIMATOR_MISTAKES.values(), ids=ESTIMATOR_MISTAKES)
def test_a_mistake_in_an_estimator_is_one_line(tmp_path: Path, mistake: tuple[str, ...]) -> None:
    new, old, expected, *marker = mistake
    file = mistaken(tmp_path, ESTIMATOR, new, old)
    assert_one_line(file, checked(file), expected, *marker)


CLASSIFIER = '''
from sklearn.linear_model import LogisticRegression, Ridge

from ssmlbench.api import PerLabelEstimator


class Mine(PerLabelEstimator):
    """Mine."""

    name = "mine"

    def classifier(self):
        return LogisticRegression()
'''


@pytest.mark.parametrize(
    ("base", "new", "expected"),
    [
        (
            "PerLabel",
            "LogisticRegression",
            "returned the class LogisticRegression; expected an object",
        ),
        (
            "PerLabel",
            "Ridge()",
            "returned a Ridge, which has no predict_proba or decision_function",
        ),
        ("MultiLabel", "Ridge()", "returned a Ridge, which has no predict_proba"),
    ],
)
def test_a_classifier_that_cannot_be_used_is_named(
    tmp_path: Path, base: str, new: str, expected: str
) -> None:
    text = CLASSIFIER.replace("PerLabel", base)
    file = mistaken(tmp_path, text, f"return {new}", "return LogisticRegression()")
    assert_one_line(file, checked(file), expected, "def classifier(")
