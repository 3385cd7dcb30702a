"""The contract of every estimator, checked on toy vectors: by `ssmlbench check` and the tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ssmlbench.checks.methods import check_meanings
from ssmlbench.checks.randomness import unseeded_draw
from ssmlbench.checks.statements import Broken, Statement
from ssmlbench.checks.toy import LABELS, Toy, toy
from ssmlbench.core.spec import REGIME_NUMBERS, RunSpec
from ssmlbench.inputs.splits import Inputs
from ssmlbench.kit.classifiers import MultiLabelEstimator, PerLabelEstimator
from ssmlbench.kit.estimator import Estimator
from ssmlbench.plugins.contract import check_contract
from ssmlbench.plugins.source_lines import defined_at
from ssmlbench.protocol.judge import Judge
from ssmlbench.protocol.observation import Labels, observe
from ssmlbench.protocol.regimes import REGIMES
from ssmlbench.protocol.sealed import SealedTruth
from ssmlbench.training.estimation import estimator_seed, run_estimator
from ssmlbench.training.evaluation import Outcome
from ssmlbench.training.run_data import RunData


def spec_for(cls: type[Estimator], regime: str, **changes: Any) -> RunSpec:
    """The spec of a run on the toy, with defaults."""
    values: dict[str, Any] = {"config": dataclasses.asdict(cls.Config())}
    if number := REGIME_NUMBERS.get(regime):
        values[number.name] = number.example
    return RunSpec(cls.name, "toy", regime, **{**values, **changes}).for_estimator()


def judged_toy(
    cls: type[Estimator],
    data: Toy,
    spec: RunSpec,
    truth: Labels | None = None,
    test_truth: Labels | None = None,
) -> Outcome:
    """Fit on the toy and score its test rows. The true labels are the toy's own if not given."""
    truth = data.truth if truth is None else truth
    test_truth = data.test_truth if test_truth is None else test_truth
    judge = Judge(spec, observe(data.truth, spec), SealedTruth(truth), test_truth)
    run_data = RunData.beside(judge, data.train, data.test)
    estimator = cls(cls.Config(**spec.config), LABELS, estimator_seed(spec))
    return Outcome.of(run_estimator(spec, estimator, run_data), judge.judgements)


def scores_of(
    cls: type[Estimator], data: Toy, spec: RunSpec, *truths: Labels
) -> np.ndarray[Any, Any]:
    """The scores of the toy's test rows."""
    return judged_toy(cls, data, spec, *truths).scores


def declares_itself(cls: type[Estimator]) -> None:
    """Check the declarations of the class."""
    check_contract(cls)
    check_meanings(cls)
    if issubclass(cls, PerLabelEstimator | MultiLabelEstimator):
        _check_classifier(cls)


def _check_classifier(cls: type[PerLabelEstimator | MultiLabelEstimator]) -> None:
    """Raise Broken unless `classifier` returns what the class can fit and score with."""
    try:
        made = cls(cls.Config(), LABELS, 0).classifier()
    except AttributeError:  # it reads what its `fit` sets; the check that fits it calls it then
        return
    scoring = {
        PerLabelEstimator.scores: ("predict_proba", "decision_function"),
        MultiLabelEstimator.scores: ("predict_proba",),
    }.get(cls.scores, ())
    if isinstance(made, type):
        problem = f"returned the class {made.__name__}; expected an object: {made.__name__}(…)"
    elif scoring and not any(hasattr(made, name) for name in scoring):
        problem = f"returned a {type(made).__name__}, which has no {' or '.join(scoring)}"
    else:
        return
    raise Broken(f"{defined_at(cls, 'classifier')}: classifier {problem}")


def fits(cls: type[Estimator], regime: str) -> None:
    """Check the form of the scores."""
    scores_of(cls, toy("vector"), spec_for(cls, regime))


def repeats_itself(cls: type[Estimator], regime: str) -> None:
    """Check that the seed decides the bits."""
    data, spec = toy("vector"), spec_for(cls, regime)
    if not np.array_equal(scores_of(cls, data, spec), scores_of(cls, data, spec)):
        raise Broken(f"two runs of one spec differ: {unseeded_draw(cls, 'self.seed')}")


def never_sees_hidden_labels(cls: type[Estimator], regime: str) -> None:
    """Check that scrambled hidden labels and test labels change nothing."""
    data, spec = toy("vector"), spec_for(cls, regime)
    seen = observe(data.truth, spec)
    scrambled = np.where(seen.labels >= 0, data.truth, 1 - data.truth).astype(np.int8)
    blind = scores_of(cls, data, spec, scrambled, 1 - data.test_truth)
    if not np.array_equal(scores_of(cls, data, spec), blind):
        raise Broken("its scores depend on labels it must not know")


def uses_what_it_declares(cls: type[Estimator], regime: str) -> None:
    """Check that other unlabelled rows change the scores if they should, and only then."""
    data, spec = toy("vector"), spec_for(cls, regime)
    rows = observe(data.truth, spec).unlabelled
    if not len(rows):
        return
    moved = data.train.values.clone()
    moved[rows] = 3 * moved[rows].flip(1)
    other = dataclasses.replace(data, train=Inputs(moved, data.train.views))
    same = np.array_equal(scores_of(cls, data, spec), scores_of(cls, other, spec))
    if same and cls.uses == "both pools":
        raise Broken('uses is "both pools", but other unlabelled rows give the same scores')
    if not same and cls.uses == "labelled rows":
        raise Broken('uses is "labelled rows", but other unlabelled rows give other scores')


def handles_few_rows(cls: type[Estimator], regime: str) -> None:
    """Check that it fits with few rows or positives."""
    scores_of(cls, toy("vector", empty_label=True), spec_for(cls, regime))
    if REGIMES[regime].splits_rows:
        number, data = REGIME_NUMBERS[regime].name, toy("vector")
        for fraction in (1.01 / len(data.truth), 1.0):
            scores_of(cls, data, spec_for(cls, regime, **{number: fraction}))


Check = Callable[[type[Estimator], str], None]
CHECKS: dict[str, Check] = {
    "it fits, and its scores are N × K numbers in [0, 1]": fits,
    "the same seed gives the same bits": repeats_itself,
    "scrambled hidden and test labels change no score": never_sees_hidden_labels,
    "unlabelled rows change its scores if it says that it uses them": uses_what_it_declares,
    "it fits with a label without positives, one labelled row, no unlabelled row": handles_few_rows,
}
"""The statements of `ssmlbench check` about an estimator in each regime, with their checks."""


NEEDS: dict[Check, tuple[str, ...]] = {
    fits: (),
    never_sees_hidden_labels: (fits.__name__, repeats_itself.__name__),
    uses_what_it_declares: (fits.__name__, repeats_itself.__name__),
}
"""Checks that must hold before a check makes sense; for all others, `fits`."""


def cases(cls: type[Estimator]) -> Iterator[tuple[str, Check, str]]:
    """Every statement with its check and regime, in every regime that the estimator declares."""
    for regime in sorted(cls.regimes):
        for statement, check in CHECKS.items():
            yield statement, check, regime


def estimator_statements(cls: type[Estimator]) -> Iterator[Statement]:
    """Yield every statement about an estimator, with the check that raises Broken if it is false."""
    yield Statement(
        "it declares the rows it uses, regimes, and hyper-parameters with default, meaning and ranges",
        partial(declares_itself, cls),
        "declares",
    )
    for text, check, regime in cases(cls):
        needs = ("declares", *NEEDS.get(check, (fits.__name__,)))
        yield Statement(text, partial(check, cls, regime), check.__name__, needs, regime)
