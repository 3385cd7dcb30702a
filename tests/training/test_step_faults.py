"""Faults of a trainer that change no number of a usual run on the CPU: modes, memory, copies, processes."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ssmlbench.checks.toy import spec_for, toy, toy_trainer, train
from ssmlbench.core.errors import Diverged
from ssmlbench.core.prefetch import ahead
from ssmlbench.inputs.encoders import Encoder
from ssmlbench.inputs.splits import Inputs
from ssmlbench.kit.losses import bce
from ssmlbench.kit.method import Method
from ssmlbench.training import batching
from ssmlbench.training.checkpoint import Checkpoint
from ssmlbench.training.device import peak_memory, reset_peak_memory
from ssmlbench.training.out_of_memory import StepBackup
from ssmlbench.training.processes import Processes
from ssmlbench.training.step_log import StepLog
from ssmlbench.training.trainer import Trainer
from tests.support.simulated_device import SimulatedDevice
from tests.training.test_simulated_device import Killed, killed_after


class Plain(Method):
    """Learns from labelled rows, and looks at unlabelled ones with the averaged network."""

    name = "plain"
    unlabelled_ema_views = ("weak",)

    def loss(self, labelled, unlabelled):  # type: ignore[no-untyped-def]
        terms = {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}
        if unlabelled is not None:
            teacher = unlabelled.ema_outputs("weak")["logits"]
            terms["unlabelled"] = (unlabelled.logits("strong") - teacher).square().mean()
        return terms


def trainer_of(cls: type[Method] = Plain, kind: str = "vector", **options: Any) -> Trainer:
    spec = spec_for(cls, "semi", epochs=2, warmup_epochs=1)
    return toy_trainer(cls, toy(kind), spec, **options)[0]


def test_each_hook_of_a_method_is_called_in_its_mode() -> None:
    """(hook, method in train mode, network in train mode, gradients): a run in one epoch of each phase."""
    calls: set[tuple[str, bool, bool, bool]] = set()

    class Noting(Plain):
        def note(self, hook: str) -> None:
            network = trainer.model.network
            calls.add((hook, self.training, network.training, torch.is_grad_enabled()))

        def start_phase(self, network):  # type: ignore[no-untyped-def]
            calls.add(("start_phase", True, True, torch.is_grad_enabled()))

        def start_epoch(self, pools):  # type: ignore[no-untyped-def]
            calls.add(("start_epoch", True, True, torch.is_grad_enabled()))

        def loss(self, labelled, unlabelled):  # type: ignore[no-untyped-def]
            self.note("loss")
            averaged = trainer.model.averaged_network
            assert not averaged.training
            assert not any(weight.requires_grad for weight in averaged.parameters())
            if unlabelled is not None:
                assert not unlabelled.ema_outputs("weak")["logits"].requires_grad
            return super().loss(labelled, unlabelled)

        def test_scores(self, rows):  # type: ignore[no-untyped-def]
            calls.add(("test_scores", self.training, True, torch.is_grad_enabled()))
            return super().test_scores(rows)

    trainer = trainer_of(Noting)
    trainer.train()
    assert calls == {
        ("start_phase", True, True, False),
        ("start_epoch", True, True, False),
        ("loss", True, True, True),
        ("test_scores", False, True, False),
    }


# ------------------------------------------------------------------------------ out of memory


def test_a_step_that_runs_out_of_memory_late_is_taken_again_from_its_start() -> None:
    """After both forward passes: outputs of the failed step, and their graph, are not used again."""
    failed: list[Tensor] = []

    class Late(Plain):
        def loss(self, labelled, unlabelled):  # type: ignore[no-untyped-def]
            terms = super().loss(labelled, unlabelled)
            if unlabelled is not None and len(failed) < 2:
                sum(terms.values()).backward()  # half a gradient, and a graph that is freed
                failed.extend((labelled.logits("strong"), unlabelled.ema_outputs("weak")["logits"]))
                raise torch.OutOfMemoryError("simulated: out of memory")
            if unlabelled is not None:
                assert labelled.logits("strong") is not failed[0]
                assert unlabelled.ema_outputs("weak")["logits"] is not failed[1]
            return terms

    expected = trainer_of(kind="image")
    expected.train()
    trainer = trainer_of(Late, kind="image")
    trainer.retries = True
    trainer.train()
    assert trainer.model.encoding.micro_batch is not None
    weights = (t.model.network.head.weight for t in (expected, trainer))
    assert torch.allclose(*weights, atol=2e-2)  # type: ignore[arg-type]  # normalised in pieces


def test_gradients_of_a_methods_own_weights_do_not_survive_a_failed_step() -> None:
    class Learns(Plain):
        def __init__(self, config: Any, labels: int):
            super().__init__(config, labels)
            self.offset = torch.nn.Parameter(torch.zeros(labels))

    trainer = trainer_of(Learns)
    backup = StepBackup(trainer.model.network, trainer.method, torch.device("cpu"))
    for weight in (*trainer.model.network.parameters(), *trainer.method.parameters()):
        weight.grad = torch.ones_like(weight)
    backup.restore()
    weights = [*trainer.model.network.parameters(), *trainer.method.parameters()]
    assert all(weight.grad is None for weight in weights)


def test_the_random_state_of_the_runs_own_gpu_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, device = trainer_of(), torch.device("cuda", 1)
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda where: ("state of", where))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda *given: calls.append(given))
    StepBackup(trainer.model.network, trainer.method, device).restore()
    assert calls == [(("state of", device), device)]


def test_a_method_has_its_own_learning_rate_in_the_schedule() -> None:
    class Quick(Plain):
        def __init__(self, config: Any, labels: int):
            super().__init__(config, labels)
            self.offset = torch.nn.Parameter(torch.zeros(labels))

        def parameter_groups(self, lr):  # type: ignore[no-untyped-def]
            return [{"params": [self.offset], "lr": 10 * lr}]

    trainer = trainer_of(Quick)
    trainer.start_phase(0)
    lr = trainer.spec.lr
    assert [group["max_lr"] for group in trainer.optimiser.param_groups] == [lr, 10 * lr]


# ------------------------------------------------------------------------------ several processes


@pytest.mark.parametrize("rank", [0, 1])
def test_only_the_first_process_writes_and_none_repeats_a_step(rank: int, tmp_path: Path) -> None:
    """The others would wait for one that repeats its step."""
    trainer = trainer_of(kind="image")
    context = dataclasses.replace(
        trainer.context,
        device=torch.device("meta"),
        checkpoint=Checkpoint(tmp_path / "state"),
        processes=Processes(rank, 2),
    )
    run_data, encoder = trainer.evaluator.run_data, trainer.model.encoder
    with SimulatedDevice():
        again = Trainer(trainer.spec, trainer.method, encoder, run_data, context)
    assert not again.retries
    assert (again.writer is not None) == (rank == 0)


@pytest.mark.parametrize(("judged", "continues_after"), [(2, 2), (1, 0)])
def test_a_state_that_the_judge_does_not_know_is_not_continued(
    tmp_path: Path, judged: int, continues_after: int
) -> None:
    """Its file may be lost: the epochs that it has not judged are trained again, with all others."""
    cls, data = Plain, toy("vector")
    spec = spec_for(cls, "semi", epochs=3, warmup_epochs=1)
    with pytest.raises(Killed):
        train(cls, data, spec, folder=tmp_path, notify=killed_after(3))
    trainer, _ = toy_trainer(cls, data, spec, folder=tmp_path)
    trainer.evaluator.run_data.judged_epochs = judged
    assert trainer._resume() == continues_after


# ------------------------------------------------------------------------------ batches


def test_inputs_that_are_read_on_the_fly_are_read_ahead_by_all_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []

    def noted(load: Any, count: int, workers: int) -> Any:
        threads.append(workers)
        return ahead(load, count, 0)

    monkeypatch.setattr(batching, "ahead", noted)
    for on_the_fly in (True, False):
        trainer = trainer_of()
        inputs = trainer.batching.inputs
        trainer.batching.inputs = Inputs(inputs.values, inputs.views, on_the_fly=on_the_fly)  # type: ignore[attr-defined]
        plan = trainer.batching.plan(0, warming_up=True)
        assert len(list(trainer.batching.batches(plan, workers=3))) == len(plan)
    assert threads == [3, 0]


def test_a_method_on_a_device_cannot_change_the_labels_of_batches() -> None:
    with SimulatedDevice() as sim:
        trainer = trainer_of(device=sim.device)
        rows = torch.arange(4).to(sim.device)
        before = trainer.batching._observed("labelled", rows).cpu()
        trainer.pools.labelled.observed.fill_(1)
        assert torch.equal(trainer.batching._observed("labelled", rows).cpu(), before)


class CutsInputs(Encoder):
    """Reads the first four columns; the rest is padding."""

    name = "cuts-inputs"
    kinds = {"vector"}
    features = 4

    def __init__(self, example: Tensor, options: Any = None):
        super().__init__(example, options)
        self.widths: set[int] = set()

    @classmethod
    def cut(cls, inputs: list[Tensor]) -> list[Tensor]:
        return [rows[:, :4] for rows in inputs]

    def forward(self, inputs: Tensor) -> Tensor:
        self.widths.add(inputs.shape[1])
        return inputs[:, :4]


def test_padding_never_reaches_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in steps nor in passes over pools."""
    data = toy("vector")
    monkeypatch.setattr(type(data), "encoder", CutsInputs)
    with SimulatedDevice() as sim:
        trainer, _ = toy_trainer(
            Plain, data, spec_for(Plain, "semi", epochs=2, warmup_epochs=1), device=sim.device
        )
        encoders = [trainer.model.network.encoder, trainer.model.averaged_network.encoder]
        trainer.train()
    assert [encoder.widths for encoder in encoders] == [{4}, {4}]


# ------------------------------------------------------------------------------ the log


def test_the_log_of_steps_keeps_no_graph() -> None:
    """Or the activations of all steps would stay in memory until the end of the epoch."""
    weight = torch.ones(1, requires_grad=True)
    log = StepLog()
    log.add({"a": (weight * 2).sum()}, {"b": (weight * 3).sum()})
    assert not any(value.requires_grad for values in log._values.values() for value in values)


def test_a_value_of_some_steps_is_averaged_over_all() -> None:
    log = StepLog()
    log.add({"a": torch.tensor(3.0)}, {"b": torch.tensor(5.0)})
    log.add({"a": torch.tensor(1.0)}, {})
    assert log.means(2) == {"loss_a": 2.0, "b": 2.5}


def test_weights_that_are_not_finite_end_the_run_though_the_loss_is_finite() -> None:
    log = StepLog()
    log.add({"a": torch.tensor(1.0)}, {})
    log.check_finite(1, log.means(1), weights=True)
    with pytest.raises(Diverged, match="the weights are not finite in epoch 1"):
        log.check_finite(1, log.means(1), weights=False)


def test_every_weight_is_checked_to_be_finite() -> None:
    trainer = trainer_of(kind="image")
    assert trainer.model.has_finite_weights()
    for weight in trainer.model.network.parameters():
        before = weight.detach().clone()
        with torch.no_grad():
            weight.fill_(np.nan)
            assert not trainer.model.has_finite_weights()
            weight.copy_(before)


def test_the_peak_of_memory_is_that_of_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, object]] = []
    for name in ("reset_peak_memory_stats", "max_memory_allocated"):
        call = partial(lambda name, device: calls.append((name, device)) or 3 * 2**20, name)
        monkeypatch.setattr(torch.cuda, name, call)
    device = torch.device("cuda", 1)
    reset_peak_memory(device)
    assert peak_memory(device) == 3
    assert calls == [("reset_peak_memory_stats", device), ("max_memory_allocated", device)]
