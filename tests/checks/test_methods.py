"""Every built-in method passes `ssmlbench check`; broken ones do not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from ssmlbench.checks import methods as conformance
from ssmlbench.checks.methods import Broken, cases, declares_itself
from ssmlbench.core.errors import ContractError, RunFailed
from ssmlbench.core.hyperparameters import option
from ssmlbench.kit.losses import bce
from ssmlbench.kit.method import Method
from ssmlbench.kit.pools import Pools
from ssmlbench.plugins.loader import Plugins
from ssmlbench.training.evaluation import Outcome
from ssmlbench.training.trainer import Trainer

METHODS = {
    name: cls for name in Plugins().methods if issubclass(cls := Plugins().methods[name], Method)
}
CASES = [
    pytest.param(cls, check, regime, kind, id=f"{name}-{check.__name__}-{regime}-{kind}")
    for name, cls in METHODS.items()
    for _, check, regime, kind in cases(cls)
]


@pytest.mark.parametrize("cls", METHODS.values(), ids=METHODS)
def test_a_method_declares_itself(cls: type[Method]) -> None:
    declares_itself(cls)
    assert cls.paper
    assert cls.__doc__


@pytest.mark.parametrize(("cls", "check", "regime", "kind"), CASES)
def test_every_method_conforms(
    cls: type[Method], check: Callable[..., None], regime: str, kind: str
) -> None:
    check(cls, regime, kind)


class _Simple(Method):
    name = "simple"
    unlabelled_views = ()

    def loss(self, labelled, unlabelled):  # type: ignore[no-untyped-def]
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}


class ForgetsState(_Simple):
    """Counts its steps in a Python number, which no checkpoint holds."""

    def loss(self, labelled, unlabelled):  # type: ignore[no-untyped-def]
        self.count = getattr(self, "count", 0) + 1
        return {"labelled": super().loss(labelled, unlabelled)["labelled"] / self.count**2}


class DrawsElsewhere(_Simple):
    def loss(self, labelled, unlabelled):  # type: ignore[no-untyped-def]
        noise = float(np.random.default_rng().random())
        logits = labelled.logits("strong") * (1 + noise)
        return {"labelled": bce(logits, labelled.observed).mean()}


class ScoresOutside(_Simple):
    def scores(self, logits: torch.Tensor) -> torch.Tensor:
        return logits


class ReadsUnlabelledRows(_Simple):
    """Has no unlabelled views, and reads the unlabelled pool between epochs."""

    def start_epoch(self, pools: Pools) -> None:
        self.bias = pools.unlabelled.logits(view="plain").mean(0)

    def loss(self, labelled, unlabelled):  # type: ignore[no-untyped-def]
        bias = getattr(self, "bias", torch.zeros(1))
        return {"labelled": bce(labelled.logits("strong") + bias, labelled.observed).mean()}


class Dies(_Simple):
    def loss(self, labelled, unlabelled):  # type: ignore[no-untyped-def]
        return {"labelled": labelled.logits("strong").sum() * float("nan")}


@pytest.mark.parametrize(
    ("cls", "check"),
    [
        (ForgetsState, conformance.survives_a_kill),
        (DrawsElsewhere, conformance.repeats_itself),
        (ScoresOutside, conformance.trains),
        (ReadsUnlabelledRows, conformance.keeps_to_its_rows),
    ],
)
def test_a_broken_method_is_caught(cls: type[Method], check: Callable[..., None]) -> None:
    with pytest.raises((Broken, ContractError)):
        check(cls, "semi", "vector")


def test_the_undisturbed_run_is_trained_once_for_all_checks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trained = []
    honest = Trainer.train

    def counted(self: Trainer) -> Outcome:
        trained.append(self.spec.seed)
        return honest(self)

    monkeypatch.setattr(Trainer, "train", counted)
    for check in (conformance.trains, conformance.never_sees_hidden_labels, conformance.trains):
        check(_Simple, "semi", "vector")
    assert len(trained) == 2  # the undisturbed run, and the one with scrambled labels


def test_a_method_that_finds_the_sealed_truth_is_caught(leaked_truths: list[np.ndarray]) -> None:
    class Peeks(_Simple):
        def loss(self, labelled, unlabelled):  # type: ignore[no-untyped-def]
            bias = float(leaked_truths[-1].mean())
            return {"labelled": bce(labelled.logits("strong") + bias, labelled.observed).mean()}

    with pytest.raises(Broken, match="must not know"):
        conformance.never_sees_hidden_labels(Peeks, "semi", "vector")


def test_a_loss_that_is_not_finite_ends_the_run_with_a_reason() -> None:
    with pytest.raises(RunFailed, match="not finite in epoch 1"):
        conformance.trains(Dies, "semi", "vector")


def test_a_hyper_parameter_needs_a_meaning() -> None:
    class Mute(_Simple):
        @dataclasses.dataclass(frozen=True)
        class Config(Method.Config):
            weight: float = 1.0

    with pytest.raises(Broken, match="weight has no meaning"):
        declares_itself(Mute)


def test_an_undeclared_view_is_named(tmp_path: Path) -> None:
    class Asks(_Simple):
        def loss(self, labelled, unlabelled):  # type: ignore[no-untyped-def]
            return {"labelled": bce(labelled.logits("weak"), labelled.observed).mean()}

    with pytest.raises(ContractError, match="add it to labelled_views, which is"):
        conformance.trains(Asks, "semi", "vector")


def test_option_carries_default_and_meaning() -> None:
    @dataclasses.dataclass(frozen=True)
    class Config:
        weight: float = option(0.5, "λ: how much")

    assert Config().weight == 0.5
    assert dataclasses.fields(Config)[0].metadata["meaning"] == "λ: how much"
