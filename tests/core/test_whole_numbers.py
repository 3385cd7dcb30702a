"""Whole numbers in texts, however long or odd."""

from __future__ import annotations

import pytest

from ssmlbench.core.errors import UserError
from ssmlbench.core.hyperparameters import parse_config
from ssmlbench.core.whole_numbers import MOST_DIGITS, in_order, in_usual_digits, whole_number
from ssmlbench.plugins.loader import Plugins


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), ("9" * 18, 10**18 - 1)])
def test_digits_are_a_number(text: str, number: int) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", " 1", "1_0", "1.0", "²", "one", "9" * (MOST_DIGITS + 1), "9" * 5000]
)
def test_any_other_text_is_none(text: str) -> None:
    assert whole_number(text) is None


def test_numbers_that_only_python_reads_are_unusual() -> None:
    assert all(map(in_usual_digits, ["0.1", "-1e-3", "nan"]))
    assert not any(map(in_usual_digits, ["0_1", "1_000", "٣", "１"]))


def test_numbers_are_ordered_by_value_and_equal_values_by_their_text() -> None:
    assert in_order({"10", "2", "02", "1"}) == ["1", "02", "2", "10"]
    assert in_order({"10", "2", "b"}) == ["10", "2", "b"]
    assert in_order({"10", "2", "9" * 5000}) == ["10", "2", "9" * 5000]


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "1e400", "9" * 5000])
def test_a_hyper_parameter_is_finite(text: str) -> None:
    config = Plugins().methods["cap"].Config
    with pytest.raises(UserError, match="must be a number"):
        parse_config(config, {"positive_share": text}, "method cap")
