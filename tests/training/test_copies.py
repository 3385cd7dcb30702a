"""What a method or an estimator is given is a copy: it cannot change how it is judged."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from ssmlbench.api import Estimator, Method, bce
from ssmlbench.checks import estimators
from ssmlbench.checks.toy import spec_for, toy, train
from ssmlbench.core.errors import ContractError, RunFailed
from ssmlbench.protocol.decisions import calibrated_thresholds
from ssmlbench.protocol.observation import observe


class Plain(Method):
    """BCE on labelled rows."""

    name = "plain"

    def loss(self, labelled, unlabelled):  # type: ignore[no-untyped-def]
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}


class Tampers(Plain):
    """Overwrites everything it is given that is not its own network, through NumPy: torch sees nothing."""

    name = "plain"

    def setup(self, pools):  # type: ignore[no-untyped-def]
        for pool in (pools.labelled, pools.unlabelled):
            pool.prior.numpy().fill(0.5)
            pool.observed.numpy().fill(1)

    def start_epoch(self, pools):  # type: ignore[no-untyped-def]
        pools.labelled.logits().numpy().fill(3.0)
        pools.labelled.prior.numpy().fill(0.5)

    def step(self, labelled, unlabelled, update):  # type: ignore[no-untyped-def]
        terms = super().step(labelled, unlabelled, update)
        for batch in (labelled, unlabelled):
            if batch is not None:
                batch.rows.numpy().fill(0)
                batch.observed.numpy().fill(1)
        with pytest.raises(AttributeError):
            update.parameters.clear()
        return terms


def test_a_method_that_overwrites_what_it_is_given_is_judged_as_any_other() -> None:
    data, spec = toy("vector"), spec_for(Plain, "semi")
    honest, tampered = (train(cls, data, spec) for cls in (Plain, Tampers))
    assert np.array_equal(honest.scores, tampered.scores)
    for name, values in honest.rule_parameters.items():
        assert np.array_equal(values, tampered.rule_parameters[name])


def test_a_change_in_place_that_torch_sees_is_refused() -> None:
    class Clamps(Plain):
        def setup(self, pools):  # type: ignore[no-untyped-def]
            pools.labelled.prior.clamp_(min=0.5)

    with pytest.raises(ContractError, match=r"setup changes pools\.labelled\.prior in place"):
        train(Clamps, toy("vector"), spec_for(Clamps, "semi"))


def test_an_estimator_that_overwrites_what_it_is_given_is_judged_as_any_other() -> None:
    class Halves(Estimator):
        name = "halves"

        def fit(self, labelled, unlabelled):  # type: ignore[no-untyped-def]
            for pool in (labelled, unlabelled):
                pool.prior[:] = 0.5
                pool.observed[:] = 1
                pool.features[:] = 0

        def scores(self, features):  # type: ignore[no-untyped-def]
            first = 1 / (1 + np.exp(-features[:, :1]))
            features[:] = 0
            return np.repeat(first, self.labels, axis=1)

    data, spec = toy("vector"), estimators.spec_for(Halves, "semi")
    before = data.train.values.clone(), data.test.values.clone()
    judged = estimators.judged_toy(Halves, data, spec)
    assert torch.equal(data.train.values, before[0])
    assert torch.equal(data.test.values, before[1])
    seen = observe(data.truth, spec)
    rows = np.concatenate([seen.labelled, seen.unlabelled])
    first = data.train.values[rows, :1].double().numpy()
    scores = np.repeat(1 / (1 + np.exp(-first)), len(seen.prior), axis=1).astype(np.float32)
    expected = calibrated_thresholds(scores, seen.prior)
    assert np.allclose(judged.rule_parameters["thresholds"], expected, atol=1e-6)


def test_a_hyper_parameter_that_is_changed_in_place_does_not_change_the_spec() -> None:
    from ssmlbench.runs.train import build_learner

    class Listed(Plain):
        name = "listed"

        @dataclasses.dataclass(frozen=True)
        class Config(Method.Config):
            layers: Any = None

    class Methods:
        methods = {"listed": Listed}

    class Task:
        label_count = 3

    spec = spec_for(Listed, "semi", config={"layers": [1, 2]})
    before = spec.hash
    learner = build_learner(spec, Methods(), Task().label_count)  # type: ignore[arg-type]
    learner.config.layers.append(3)
    assert spec.hash == before


@pytest.mark.parametrize("override", ["scores", "test_scores"])
@pytest.mark.parametrize("bad", [float("nan"), -0.1, 1.5], ids=["nan", "below", "above"])
def test_scores_that_are_no_scores_end_the_run_with_the_methods_name(
    override: str, bad: float
) -> None:
    def wrong(self: Method, given: Any) -> torch.Tensor:
        scores = torch.full((len(given), self.labels), 0.5)
        scores[0, 0] = bad
        return scores

    cls = type("Wrong", (Plain,), {override: wrong, "name": "wrong"})
    with pytest.raises(RunFailed, match="scores of wrong are not all numbers"):
        train(cls, toy("vector"), spec_for(cls, "semi", epochs=1, warmup_epochs=0))


@pytest.mark.parametrize(
    ("kind", "convert"),
    [
        ("meta", lambda scores: scores.to("meta")),
        ("sparse_coo float32", lambda scores: scores.to_sparse()),
        ("strided complex64", lambda scores: scores + 1j),
    ],
)
def test_tensors_without_real_numbers_are_no_scores(
    kind: str, convert: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    def wrong(self: Method, given: Any) -> torch.Tensor:
        return convert(torch.full((len(given), self.labels), 0.5))

    cls = type("Wrong", (Plain,), {"test_scores": wrong, "name": "wrong"})
    with pytest.raises(ContractError, match=f"scores of wrong must .* got a tensor of {kind}"):
        train(cls, toy("vector"), spec_for(cls, "semi", epochs=1, warmup_epochs=0))
