"""Whole runs on a second device: the CPU's bits, no mixed devices, no wait for a value in a step.

`tests/training/test_device_discipline.py` leads methods through their calls without values; here the
trainer itself runs, on a device with values (tests/support/simulated_device.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ssmlbench.checks.toy import Toy, same_bits, spec_for, toy, toy_trainer, train
from ssmlbench.core.events import EpochEnded, Event
from ssmlbench.inputs.transfer import Transfer
from ssmlbench.kit.method import Method
from ssmlbench.plugins.loader import Plugins
from ssmlbench.training.ema import Ema
from ssmlbench.training.evaluation import Outcome
from ssmlbench.training.trainer import StepLog, Trainer
from tests.support.simulated_device import MixedDevices, SimulatedDevice, traffic_of_steps

ALL = {
    name: cls
    for name in Plugins(()).methods
    if issubclass(cls := Plugins(()).methods[name], Method)
}
FEW = {
    "cap",
    "bbam",
    "flatmatch",
    "role",
}  # pools, cosines, two backward passes, a second optimiser
EPOCHS = 3
pytestmark = [
    # Torch thinks of the device without values that lends its name.
    pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter:UserWarning"),
    pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad:UserWarning"),
]


def cases(few: set[str]) -> list[Any]:
    return [
        pytest.param(name, kind, id=f"{name}-{kind}", marks=() if quick else pytest.mark.slow)
        for name in ALL
        for kind in ("vector", "image")
        for quick in [name in few and (kind == "vector" or name == "cap")]
    ]


def short_spec(cls: type[Method]) -> Any:
    regime = "semi" if "semi" in cls.regimes else min(cls.regimes)
    return spec_for(cls, regime, epochs=EPOCHS, warmup_epochs=1)


def run_on(
    sim: SimulatedDevice, cls: type[Method], data: Toy, spec: Any, extra_copies: int = 0
) -> tuple[Outcome, list[Any]]:
    """A whole run on the device, and what crossed in each of its steps."""
    trainer, judge = toy_trainer(cls, data, spec, device=sim.device)
    with traffic_of_steps(trainer, sim) as steps:
        outcome = Outcome.of(trainer.train(), judge.judgements)
    assert all(weight.device == sim.device for weight in trainer.model.network.parameters())
    assert len(steps) == outcome.steps
    method = trainer.method  # it may have chosen its views in `setup`
    views = (method.labelled_views, method.unlabelled_views, method.unlabelled_ema_views)
    batches = sum(map(len, views)) + 2  # its views, and the positions of the rows of two pools
    extra = max(step.to_device.total() for step in steps) - batches
    assert extra <= extra_copies, f"{extra} copies to the device in a step beside its batches"
    return outcome, steps


@pytest.mark.parametrize(("name", "kind"), cases(FEW))
def test_a_run_has_the_bits_of_the_cpu_and_no_step_waits(name: str, kind: str) -> None:
    cls, data = ALL[name], toy(kind)
    spec = short_spec(cls)
    expected = train(cls, data, spec)
    with SimulatedDevice() as sim:
        found, steps = run_on(sim, cls, data, spec)
        assert same_bits(expected, found)
    for step in steps:
        assert not step.waits, f"a step waits: {dict(step.waits)}"
        assert not step.to_host, f"a step copies to the host: {dict(step.to_host)}"
        assert not step.unpinned, f"a step copies memory that is not pinned: {dict(step.unpinned)}"


class Killed(Exception):
    """The run ends here, as after a kill."""


def killed_after(epochs: int) -> Callable[[Event], None]:
    def notify(event: Event) -> None:
        if isinstance(event, EpochEnded) and event.epoch == epochs:
            raise Killed

    return notify


@pytest.mark.parametrize(("name", "kind"), cases({"cap", "role"}))
def test_a_killed_run_resumes_on_the_device(name: str, kind: str, tmp_path: Path) -> None:
    cls, data = ALL[name], toy(kind)
    spec = short_spec(cls)
    expected = train(cls, data, spec)
    with SimulatedDevice() as sim:
        with pytest.raises(Killed):
            train(cls, data, spec, folder=tmp_path, notify=killed_after(EPOCHS), device=sim.device)
        resumed = []
        found = train(cls, data, spec, folder=tmp_path, notify=resumed.append, device=sim.device)
        assert next(type(event).__name__ for event in resumed) == "Resumed"
        assert same_bits(expected, found)


# --------------------------------------------------------------------- the device itself is tested


Fault = Callable[[Any], None]


def reads_a_term(terms: list[Tensor]) -> None:
    float(terms[0])


def asks_a_term(terms: list[Tensor]) -> None:
    if terms[0] > 1e9:
        raise ValueError


def copies_a_term(terms: list[Tensor]) -> None:
    terms[0].cpu()


def selects_by_mask(terms: list[Tensor]) -> None:
    values = torch.stack(terms)
    values[values > 0].sum()


def writes_by_mask(terms: list[Tensor]) -> None:
    values = torch.stack(terms)
    values[values > 0] = values.detach().abs()


def counts_what_is_set(terms: list[Tensor]) -> None:
    torch.stack(terms).nonzero()


def makes_a_tensor_of_a_list(terms: list[Tensor]) -> None:
    torch.tensor([0.1, 0.2]).to(terms[0].device)


def reads_the_average(ema: Ema) -> None:
    ema._averaged[0].mean().item()


def follows_a_value(trainer: Trainer) -> None:
    """A schedule that looks at a weight, as one on a plateau looks at the loss."""
    trainer.optimiser.param_groups[0]["lr"] *= 1 + 0 * float(trainer.parameters[0].sum())


def test_the_trainer_without_a_fault_has_none_of_what_is_counted_below() -> None:
    with SimulatedDevice() as sim:
        _, steps = run_on(sim, ALL["bce"], toy("vector"), fault_spec())
    assert not any(step.waits or step.to_host or step.unpinned for step in steps)


def fault_spec() -> Any:
    return spec_for(ALL["bce"], "semi", epochs=1, warmup_epochs=0)


@pytest.mark.parametrize(
    ("fault", "owner", "function", "where"),
    [
        (reads_a_term, StepLog, "add", "waits"),
        (asks_a_term, StepLog, "add", "waits"),
        (selects_by_mask, StepLog, "add", "waits"),
        (writes_by_mask, StepLog, "add", "waits"),
        (counts_what_is_set, StepLog, "add", "waits"),
        (makes_a_tensor_of_a_list, StepLog, "add", "waits"),
        (copies_a_term, StepLog, "add", "to_host"),
        (reads_the_average, Ema, "update", "waits"),
        (follows_a_value, Trainer, "apply", "waits"),
    ],
)
def test_a_fault_put_into_the_trainers_step_is_found(
    monkeypatch: pytest.MonkeyPatch, fault: Fault, owner: type, function: str, where: str
) -> None:
    right = getattr(owner, function)

    def faulty(self: Any, *given: Any) -> Any:
        fault([term.detach() for term in given[0].values()] if owner is StepLog else self)
        return right(self, *given)

    monkeypatch.setattr(owner, function, faulty)
    with SimulatedDevice() as sim:
        _, steps = run_on(sim, ALL["bce"], toy("vector"), fault_spec(), extra_copies=1)
    assert all(getattr(step, where).total() >= 1 for step in steps)


def test_a_batch_that_is_not_pinned_or_is_copied_row_by_row_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cls, data = ALL["bce"], toy("vector")
    with SimulatedDevice() as sim, monkeypatch.context() as patched:
        patched.setattr(Transfer, "pinned", lambda self, batch: batch)
        _, steps = run_on(sim, cls, data, fault_spec())
    assert all(step.unpinned.total() >= 2 for step in steps)  # rows and their positions

    def row_by_row(self: Transfer, batch: Any) -> Any:
        return [
            {k: torch.stack([row.to(self.device) for row in part]) for k, part in parts.items()}
            for parts in batch
        ]

    monkeypatch.setattr(Transfer, "moved", row_by_row)
    with SimulatedDevice() as sim, pytest.raises(AssertionError, match="copies to the device"):
        run_on(sim, cls, data, fault_spec())


def test_an_extra_copy_to_the_device_in_every_step_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apply = Trainer.apply

    def copying(trainer: Trainer, update: Any) -> None:
        torch.ones(3).to(trainer.context.device)
        apply(trainer, update)

    cls = ALL["bce"]
    with SimulatedDevice() as sim:
        _, before = run_on(sim, cls, toy("vector"), fault_spec())
        monkeypatch.setattr(Trainer, "apply", copying)
        _, after = run_on(sim, cls, toy("vector"), fault_spec(), extra_copies=1)
    more = [b.to_device.total() - a.to_device.total() for a, b in zip(before, after, strict=True)]
    assert set(more) == {1}


def test_a_tensor_left_on_the_host_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    add = StepLog.add

    def mixing(log: StepLog, terms: Any, diagnostics: Any) -> None:
        add(log, {name: (term * torch.ones(1)).sum() for name, term in terms.items()}, diagnostics)

    monkeypatch.setattr(StepLog, "add", mixing)
    cls = ALL["bce"]
    with SimulatedDevice() as sim, pytest.raises(MixedDevices, match="found cpu and meta"):
        run_on(sim, cls, toy("vector"), fault_spec())


def test_values_views_and_gradients_are_those_of_the_cpu() -> None:
    start = torch.arange(6.0).reshape(2, 3)
    with SimulatedDevice() as sim:
        there = start.to(sim.device)
        row = there[1]
        row.add_(10)  # a view shares its values
        leaf = there.detach().requires_grad_()
        (leaf.T @ leaf).square().sum().backward()
        assert leaf.grad is not None
        assert leaf.grad.device == sim.device
        values, gradient = there.cpu(), leaf.grad.cpu()
        assert there.sum().item() == values.sum().item()
    here = start.clone()
    here[1] += 10
    assert torch.equal(values, here)
    assert torch.equal(start, torch.arange(6.0).reshape(2, 3))  # the host's tensor is another
    here.requires_grad_()
    (here.T @ here).square().sum().backward()
    assert here.grad is not None
    assert torch.equal(gradient, here.grad)
    assert sim.traffic.to_device.total() == 1
    assert sim.traffic.waits.total() == 2  # the copy, which blocks, and `item`
