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
from ssmlbench.inputs.transfer import Transfer
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


Counts = tuple[int, int, int]


def counts(traffic: Traffic) -> Counts:
    """Waits, copies to the host, and copies to the device from memory that is not pinned."""
    return traffic.waits.total(), traffic.to_host.total(), traffic.unpinned.total()


def outside_of_steps(rows: int, folder: Path, name: str = "cap", **fields: Any) -> Counts:
    """The counts of a whole run, without those of its steps."""
    total, steps = traffic_of(rows, folder, name, **fields)
    inside = [counts(step) for step in steps]
    waits, to_host, unpinned = (
        whole - sum(own[i] for own in inside) for i, whole in enumerate(counts(total))
    )
    return waits, to_host, unpinned


def traffic_of(
    rows: int, folder: Path, name: str = "cap", **fields: Any
) -> tuple[Traffic, list[Traffic]]:
    """The traffic of a whole run, and that of each of its steps."""
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
        return sim.traffic.since(before), steps


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


def test_a_pass_copies_its_batches_from_pinned_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = Transfer.pinned
    monkeypatch.setattr(
        Transfer, "pinned", lambda self, batch: batch if len(batch) == 1 else pinned(self, batch)
    )  # the batch of a pass has one part, that of a step three
    assert grows(tmp_path)


def copies_of_passes(folder: Path) -> int:
    """Copies to the device outside of steps, where a pass is one batch."""
    total, steps = traffic_of(FEW, folder)
    return total.to_device.total() - sum(step.to_device.total() for step in steps)


def test_a_pass_copies_a_batch_at_once_and_not_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, rows = copies_of_passes(tmp_path / "usual"), len(toy("vector").truth)
    moved = Transfer.moved

    def row_by_row(self: Transfer, batch: Any) -> Any:
        if len(batch) > 1:
            return moved(self, batch)
        return [
            {
                k: torch.stack([r.to(self.device, non_blocking=True) for r in part])
                for k, part in p.items()
            }
            for p in batch
        ]

    monkeypatch.setattr(Transfer, "moved", row_by_row)
    assert usual < rows < copies_of_passes(tmp_path / "by row")


def test_rows_that_are_gathered_on_the_host_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = evaluation.put_rows

    def on_the_host(whole: Any, name: str, part: Any, *where: Any) -> None:
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
            waits, to_host, _ = counts(sim.traffic.since(before))
            return len(snapshot.tensors), waits, to_host

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
