"""The ranges of hyper-parameters that `tune` draws from."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from random import Random
from typing import Any, Literal

import numpy as np
import pytest

from ssmlbench.checks.methods import declares_itself
from ssmlbench.core.errors import UserError
from ssmlbench.core.hyperparameters import between, choice, faults, option
from ssmlbench.kit.method import Method


def test_a_log_range_is_even_over_orders_of_magnitude() -> None:
    search = between(0.01, 100.0, log=True)
    drawn = [search.draw(Random(i)) for i in range(2000)]
    assert all(0.01 <= value <= 100 for value in drawn)
    # The median of a log-uniform draw is √(0.01 · 100) = 1; 2000 draws: ± 3 √(0.25 / 2000) = 3.4 %.
    assert abs(np.mean([value < 1 for value in drawn]) - 0.5) < 0.034


def test_whole_numbers_give_whole_numbers_with_both_ends() -> None:
    assert {between(1, 3).draw(Random(i)) for i in range(100)} == {1, 2, 3}
    assert {between(1, 3, log=True).draw(Random(i)) for i in range(100)} == {1, 2, 3}
    assert all(isinstance(between(1, 3, log=True).draw(Random(i)), int) for i in range(9))


def test_a_choice_gives_each_of_its_values() -> None:
    assert {choice("asl", "bce").draw(Random(i)) for i in range(50)} == {"asl", "bce"}


@pytest.mark.parametrize("make_range", [
    lambda: between(2.0, 1.0),
    lambda: between(0.0, 1.0, log=True),
    lambda: between(0.0, math.inf),
    lambda: choice("one"),
])  # fmt: skip
def test_a_range_that_holds_nothing_is_refused(make_range: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"between|choice"):
        make_range()


@dataclasses.dataclass(frozen=True)
class Sound:
    weight: float = option(1.0, "λ", search=between(0.1, 10.0, log=True))
    rounds: int = option(2, "n", search=between(1, 8))
    loss: Literal["asl", "bce"] = option("asl", "l", search=choice("asl", "bce"))
    ratio: float | None = option(5.0, "η", search=between(1.0, 9.0))
    balance: bool = option(True, "b", search=choice(True, False))


@dataclasses.dataclass(frozen=True)
class Unsound:
    outside: float = option(11.0, "λ", search=between(0.1, 10.0))
    halves: int = option(2, "n", search=between(1.0, 8.0))
    whole: float = option(2.0, "n", search=between(1, 8))
    unknown: Literal["asl", "bce"] = option("asl", "l", search=choice("asl", "mse"))
    bare: float = option(1.0, "λ", search=(0.1, 10.0))  # type: ignore[arg-type]
    nothing: float | None = option(None, "κ", search=between(1.0, 9.0))


def test_a_range_must_fit_its_hyper_parameter() -> None:
    assert faults(Sound) == []
    said = [fault.partition(":")[0] for fault in faults(Unsound)]
    assert said == ["outside", "halves", "whole", "unknown", "bare", "nothing"]


def test_check_tells_of_a_default_outside_its_range() -> None:
    class Loose(Method):
        name = "loose"

        @dataclasses.dataclass(frozen=True)
        class Config(Method.Config):
            sure: float = option(0.9, "τ", search=between(0.1, 0.5))

        def loss(self, labelled, unlabelled):  # type: ignore[no-untyped-def]
            return {"labelled": labelled.logits("strong").mean()}

    with pytest.raises(UserError, match=r"sure: its default 0.9 is not in search \(0.1 to 0.5\)"):
        declares_itself(Loose)
