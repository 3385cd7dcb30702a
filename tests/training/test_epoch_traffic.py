"""Passes over pools, logging and checkpoints on a device: what they wait for does not grow with the rows.

Waits inside steps are counted in test_simulated_device.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ssmlbench.checks.toy import spec_for, toy, toy_trainer
from ssmlbench.plugins.loader import Plugins
from ssmlbench.training import evaluation
from ssmlbench.training.checkpoint import Snapshot
from ssmlbench.training.model import Model
from ssmlbench.training.step_log import StepLog
from tests.support.simulated_device import SimulatedDevice, Traffic, traffic_of_steps
from tests.training.test_simulated_device import pytestmark as ignored

pytestmark = ignored
METHODS = Plugins(()).methods
MANY, FEW = 4, 1000
"""Rows of a batch of a pass: there are many batches, or one."""


def counts(traffic: Traffic) -> tuple[int, int]:
    return traffic.waits.total(), traffic.to_host.total()


def outside_of_steps(rows: int, folder: Path, name: str = "cap", **fields: Any) -> tuple[int, int]:
    """Waits and copies to the host of a whole run, without those of its steps."""
    spec = spec_for(METHODS[name], "semi", epochs=3, warmup_epochs=1, **fields)
    folder.mkdir(exist_ok=True)
    with SimulatedDevice() as sim:
        trainer, _ = toy_trainer(
            METHODS[name], toy("vector"), spec, folder=folder, device=sim.device
        )
        trainer.model.batch_rows = rows
        before = sim.traffic.copied()
        with traffic_of_steps(trainer, sim) as steps:
            trainer.train()
        waits, copies = counts(sim.traffic.since(before))
    inside = [counts(step) for step in steps]
    return waits - sum(w for w, _ in inside), copies - sum(c for _, c in inside)


def grows(folder: Path, **fields: Any) -> bool:
    few, many = (
        outside_of_steps(rows, folder / f"{rows} {fields}", **fields) for rows in (FEW, MANY)
    )
    return many != few


@pytest.mark.parametrize("selection", ["last", "val"])
@pytest.mark.parametrize("name", ["bce", "cap", "bbam", "flatmatch", "drml"])
def test_what_a_run_waits_for_does_not_grow_with_its_batches(
    tmp_path: Path, name: str, selection: str
) -> None:
    assert not grows(tmp_path, name=name, selection=selection)


def after(right: Callable[..., Any], fault: Callable[[Any], object]) -> Callable[..., Any]:
    def faulty(*given: Any, **named: Any) -> Any:
        result = right(*given, **named)
        fault(result)
        return result

    return faulty


@pytest.mark.parametrize(
    "fault",
    [
        lambda outputs: outputs["logits"].sum().item(),
        lambda outputs: outputs["features"].cpu(),
        lambda outputs: bool(outputs["logits"].isfinite().all()),
        lambda outputs: outputs["logits"][outputs["logits"] > 0],
    ],
    ids=["reads a value", "copies to the host", "asks a question", "selects by a mask"],
)
def test_a_fault_in_every_batch_of_a_pass_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Any], object]
) -> None:
    monkeypatch.setattr(Model, "predict", after(Model.predict, fault))
    assert grows(tmp_path)


def test_rows_that_are_gathered_on_the_host_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = evaluation.put_rows

    def on_the_host(whole: Any, name: str, part: Any, *where: int) -> None:
        whole.setdefault(f"{name} there", []).append(part.cpu())
        put(whole, name, part, *where)

    monkeypatch.setattr(evaluation, "put_rows", on_the_host)
    assert grows(tmp_path)


def test_the_log_of_an_epoch_is_read_once_for_each_term(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waits_of_logs(batch: int, folder: str) -> int:
        return outside_of_steps(FEW, tmp_path / folder, "bce", batch_size=batch)[0]

    assert waits_of_logs(8, "many") == waits_of_logs(64, "few")

    def one_by_one(log: StepLog, steps: int) -> dict[str, float]:
        return {name: sum(map(float, values)) / steps for name, values in log._values.items()}

    monkeypatch.setattr(StepLog, "means", one_by_one)
    assert waits_of_logs(8, "more") > waits_of_logs(64, "fewer")


def test_a_checkpoint_copies_every_tensor_once_and_asks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = spec_for(METHODS["cap"], "semi", epochs=2, warmup_epochs=1)

    def counted() -> tuple[int, int, int]:
        with SimulatedDevice() as sim:
            trainer, _ = toy_trainer(METHODS["cap"], toy("vector"), spec, device=sim.device)
            trainer.train()
            before = sim.traffic.copied()
            snapshot = trainer._state.snapshot()
            return len(snapshot.tensors), *counts(sim.traffic.since(before))

    tensors, waits, copies = counted()
    assert waits == 0
    assert 0 < copies <= tensors  # a step's number is kept on the host

    right = Snapshot.of

    def checked(sections: Any, facts: Any) -> Snapshot:
        for section in sections.values():
            for value in section.values():
                assert torch.isfinite(value).all()
        return right(sections, facts)

    monkeypatch.setattr(Snapshot, "of", checked)
    assert counted()[1] >= copies
