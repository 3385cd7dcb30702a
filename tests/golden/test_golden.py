"""Golden runs: what the engine gives today is what its protocol version gave.

A method's code digest covers the method. What it cannot see (the trainer, the views, the scaling, the
optimiser, the average of the weights, the decision rules, the metrics) is covered by these runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ssmlbench.core.spec import PROTOCOL_VERSION
from tests.golden.runs import BERT, RUNS, TABLE, distance, make
from tests.support.tiny_models import save_tiny_bert

TOLERANCE = 5e-5
"""Another CPU's rounding moves scores by 1e-6; another view, schedule or average by 1e-3 and more."""
DROPOUT = [1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0]
"""What the torch that made the table keeps of twenty values, with a dropout of 0.3 and seed 1 on a CPU."""
TRAINED_WITH_DROPOUT = ("texts, single positive, an",)
ADVICE = (
    "The numbers of this protocol version have changed. Raise PROTOCOL_VERSION "
    "(ssmlbench/core/spec.py) and rewrite the table with `python -m tests.golden.runs`, or undo "
    "the change."
)


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    return json.loads(TABLE.read_text())


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("models") / BERT)


def test_the_table_is_of_this_protocol_version_and_of_these_runs(table: dict[str, Any]) -> None:
    assert table["protocol"] == PROTOCOL_VERSION, (
        "PROTOCOL_VERSION was raised: rewrite the table with `python -m tests.golden.runs`"
    )
    assert {name: run["options"] for name, run in table["runs"].items()} == RUNS, (
        "the golden runs were edited: rewrite the table with `python -m tests.golden.runs`, and "
        "see that the runs that stayed have the same numbers"
    )


def dropout_mask() -> list[int]:
    torch.manual_seed(1)
    return [int(value) for value in torch.nn.functional.dropout(torch.ones(20), 0.3) > 0]


@pytest.mark.parametrize("name", RUNS)
def test_numbers_are_those_of_the_protocol_version(
    name: str, table: dict[str, Any], bert: Path, tmp_path: Path
) -> None:
    if name in TRAINED_WITH_DROPOUT and dropout_mask() != DROPOUT:
        pytest.skip("this version of torch draws other dropout masks than the table's")
    expected, found = table["runs"][name], make(name, bert, tmp_path)
    # A rule or metric that was added later changes no number that is in the table.
    found["metrics"] = {
        rule: {metric: found["metrics"][rule][metric] for metric in values}
        for rule, values in expected["metrics"].items()
    }
    differences = {key: distance(expected[key], found[key]) for key in expected}
    moved = {key: difference for key, difference in differences.items() if difference > TOLERANCE}
    assert not moved, f"{name}: differences {moved}. {ADVICE}"


def _slower_average(monkeypatch: pytest.MonkeyPatch) -> None:
    from ssmlbench.training.ema import Ema

    update = Ema.update

    def delayed(self: Ema) -> None:
        self.updates += 1
        update(self)
        self.updates -= 1

    monkeypatch.setattr(Ema, "update", delayed)


def _longer_rise(monkeypatch: pytest.MonkeyPatch) -> None:
    one_cycle = torch.optim.lr_scheduler.OneCycleLR

    def planned(*args: Any, **options: Any) -> Any:
        return one_cycle(*args, **{**options, "pct_start": options["pct_start"] + 0.02})

    monkeypatch.setattr(torch.optim.lr_scheduler, "OneCycleLR", planned)


def _other_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    adam = torch.optim.AdamW
    monkeypatch.setattr(torch.optim, "AdamW", lambda *a, **k: adam(*a, **k, betas=(0.9, 0.99)))


def _other_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.rand

    def shifted(*shape: Any, **options: Any) -> Any:
        return draw(*shape, **options) * 0.99

    monkeypatch.setattr(torch, "rand", shifted)


CHANGES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the average warms up one step later": _slower_average,
    "the learning rate rises for longer": _longer_rise,
    "the optimiser has other moments": _other_moments,
    "views are drawn with a chance 1 % larger": _other_draws,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.usefixtures("in_this_process")
def test_a_changed_engine_is_noticed(
    change: str,
    table: dict[str, Any],
    bert: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    CHANGES[change](monkeypatch)
    name = "images, semi, cap"
    found = make(name, bert, tmp_path)
    assert distance(table["runs"][name]["scores"], found["scores"]) > 10 * TOLERANCE


def test_the_distance_of_two_tables_sees_every_number_and_the_shape() -> None:
    assert distance({"a": [[0.5, 0.25]]}, {"a": [[0.5, 0.5]]}) == 0.25
    assert distance({"a": {"b": 0.5, "c": 1}}, {"a": {"b": 0.5, "c": 3}}) == 2
    assert distance({"a": 1}, {"b": 1}) == np.inf
    assert distance([1.0], [1.0, 2.0]) == np.inf
    assert distance({"a": float("nan")}, {"a": float("nan")}) == 0
