"""The run spec: what is in the hash, and what `--set` accepts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.core.hyperparameters import parse_config
from ssmlbench.core.spec import RunSpec, check_spec
from ssmlbench.core.suggestions import did_you_mean

SPEC = RunSpec("cap", "multidigits", pi=0.1, config={"loss": "asl"})


@pytest.mark.parametrize(
    "change",
    [
        {"method": "bbam"},
        {"dataset": "aapd"},
        {"regime": "full"},
        {"pi": 0.05},
        {"seed": 1},
        {"split": "stratified"},
        {"selection": "val"},
        {"backbone": "vector"},
        {"epochs": 39},
        {"lr": 0.01},
        {"config": {"loss": "bce"}},
        {"code": "edited"},
        {"data": "other"},
        {"protocol": 2},
    ],
    ids=lambda change: next(iter(change)),
)
def test_everything_that_can_change_the_number_is_in_the_hash(change: dict[str, Any]) -> None:
    assert dataclasses.replace(SPEC, **change).hash != SPEC.hash


def test_a_spec_survives_its_file() -> None:
    spec = dataclasses.replace(SPEC, changed=("loss",))
    assert RunSpec.from_dict(spec.as_dict()) == spec
    assert RunSpec.from_dict(spec.as_dict()).hash == spec.hash


def test_a_variant_names_what_was_changed() -> None:
    assert SPEC.variant == "cap"
    changed = dataclasses.replace(
        SPEC, changed=("balance", "loss"), config={"loss": "bce", "balance": False}
    )
    assert changed.variant == "cap (balance=false, loss=bce)"


def test_the_regime_label_carries_its_number() -> None:
    assert SPEC.regime_label == "semi-0.1"
    assert dataclasses.replace(SPEC, regime="full", pi=None).regime_label == "full"
    partial = dataclasses.replace(SPEC, regime="partial-positive", pi=None, share=0.5)
    assert partial.regime_label == "partial-positive-0.5"


@pytest.mark.parametrize("pi", [0.0, -0.1, 1.5, None])
def test_a_labelled_fraction_outside_its_range_is_refused(pi: float | None) -> None:
    with pytest.raises(UserError, match=r"\(0, 1\]"):
        check_spec(dataclasses.replace(SPEC, pi=pi))


@pytest.mark.parametrize(
    "change", [{"epochs": 0}, {"batch_size": 0}, {"warmup_epochs": 99}, {"lr": 0.0}]
)
def test_numbers_no_run_can_be_made_with_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="--"):
        check_spec(dataclasses.replace(SPEC, **change))


@dataclass(frozen=True)
class Config:
    loss: Literal["asl", "bce"] = "asl"
    gamma: float = 4.0
    count: int = 3
    balance: bool = True
    eta: float | None = 5.0


def test_settings_are_typed_by_the_config() -> None:
    made = parse_config(
        Config, {"loss": "bce", "gamma": "2", "count": "7", "balance": "false", "eta": "none"}, "x"
    )
    assert made == Config("bce", 2.0, 7, False, None)
    assert isinstance(made.gamma, float)


@pytest.mark.parametrize(
    ("settings", "answer"),
    [
        ({"gama": "1"}, "Did you mean gamma"),
        ({"loss": "mse"}, "one of asl, bce"),
        ({"count": "2.5"}, "whole number"),
        ({"gamma": "much"}, "a number"),
        ({"balance": "perhaps"}, "true or false"),
    ],
)
def test_a_wrong_setting_is_answered_with_the_right_one(
    settings: dict[str, str], answer: str
) -> None:
    with pytest.raises(UserError, match=answer):
        parse_config(Config, settings, "method cap")


def test_a_name_far_from_everything_gets_the_list() -> None:
    assert did_you_mean("zzz", ["cap", "bbam"]) == " There is: bbam, cap."
