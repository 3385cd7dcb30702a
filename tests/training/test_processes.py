"""What several processes of a run share, without the processes: gradients, random numbers, state."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from ssmlbench.checks.toy import spec_for, toy, toy_trainer
from ssmlbench.plugins.loader import Plugins
from ssmlbench.training.processes import (
    Processes,
    SharedJudge,
    SharedPass,
    _with_summed_gradients,
    share_statistics,
)


def test_gradients_of_processes_are_summed_and_not_averaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Adam hides a factor: scores alone would not show it. Three processes with equal rows:
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: tensor.mul_(3))
    monkeypatch.setattr(dist, "get_world_size", lambda: 3)
    rows, encoder = torch.randn(5, 4), nn.Linear(4, 2)
    gradients = []
    for shared in (encoder, _with_summed_gradients(encoder)):
        encoder.zero_grad()
        shared(rows).square().sum().backward()
        gradients.append([weight.grad.clone() for weight in encoder.parameters()])  # type: ignore[union-attr]
    alone, summed = gradients
    for own, total in zip(alone, summed, strict=True):
        assert torch.allclose(total, 3 * own)


def test_a_process_has_the_gradient_of_its_own_rows_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process computes the whole loss: its rows' gradient is there, and must not be multiplied."""

    def gather(parts: list[Tensor], own: Tensor) -> None:
        for part in parts:
            part.copy_(own)

    monkeypatch.setattr(dist, "all_gather", gather)
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: tensor)
    rows, encoder = torch.randn(6, 4), nn.Linear(4, 2)
    features = SharedPass(Processes(1, 3))(encoder, rows)
    assert len(features) == 6
    own = [1, 4]  # every third row, from the second
    weights = torch.randn(6, 2)
    (features * weights).sum().backward()
    found = encoder.weight.grad
    assert found is not None
    assert torch.allclose(found, weights[own].T @ rows[own])


def test_a_weight_that_is_not_used_has_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one of zeros it would decay, as it does not in one process."""
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: tensor)

    class HalfUsed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, rows: Tensor) -> Tensor:
            found: Tensor = self.used(rows)
            return found

    encoder = HalfUsed()
    _with_summed_gradients(encoder)(torch.ones(1, 2)).sum().backward()
    assert encoder.used.weight.grad is not None
    assert encoder.unused.weight.grad is None


def test_gradients_keep_the_layout_of_their_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fused optimisers read weight and gradient in memory order."""
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: tensor.mul_(2))
    images, there = torch.randn(2, 3, 5, 5), torch.channels_last
    encoder = nn.Conv2d(3, 4, 3).to(memory_format=there)
    gradients = []
    for shared in (encoder, _with_summed_gradients(encoder)):
        loss = shared(images.to(memory_format=there)).square().sum()
        # As methods with two backward passes do; `backward` would copy it to the right layout.
        gradients += torch.autograd.grad(loss, encoder.weight)
    assert gradients[1].stride() == gradients[0].stride() == encoder.weight.stride()
    assert torch.allclose(gradients[1], 2 * gradients[0])


def test_every_tensor_gets_the_values_of_the_first_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def broadcast(own: Tensor, src: int) -> None:
        assert src == 0
        own.copy_(first.pop(0))

    there = torch.channels_last
    sent: list[Tensor] = [
        torch.randn(2, 3, 4, 4).to(memory_format=there),
        torch.tensor(7),
        torch.tensor([True, False]),
        torch.randn(4).bfloat16(),
    ]
    first = [value.contiguous().reshape(-1).view(torch.uint8) for value in sent]
    monkeypatch.setattr(dist, "broadcast", broadcast)
    own = [torch.zeros_like(value) for value in sent]
    assert own[0].is_contiguous(memory_format=there)
    Processes(1, 2).broadcast([*own, torch.empty(0), torch.zeros(1).expand(3)])
    assert all(torch.equal(a, b) for a, b in zip(own, sent, strict=True))
    assert not first


@pytest.mark.parametrize("answer", [True, False])
def test_only_the_first_process_asks_the_judge_and_all_have_its_answer(
    monkeypatch: pytest.MonkeyPatch, answer: bool
) -> None:
    shown: list[Tensor] = []

    def broadcast(value: Tensor, src: int) -> None:
        shown.append(value.clone())
        value.fill_(int(answer))

    asked: list[str] = []

    class Judging:
        def __getattr__(self, name: str) -> Any:
            return lambda *given: asked.append(name) or answer

    monkeypatch.setattr(dist, "broadcast", broadcast)
    for rank in (0, 1):
        judge = SharedJudge(Processes(rank, 2), Judging(), torch.device("cpu"))  # type: ignore[arg-type]
        assert judge.is_best(1, None) is answer
        judge.grade(1, None, None)
        judge.hand_in(1, None, None)
        judge.record(1, None, None, None)
        judge.hand_in_weights(None)
        judge.save(1)
    assert asked == ["is_best", "grade", "hand_in", "record", "hand_in_weights", "save"]
    assert shown[0].item() == int(answer)


def test_shared_normalisation_is_that_of_one_process_with_all_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Two processes with equal rows are one process with each row twice.
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: tensor.mul_(2))
    rows = torch.randn(3, 4, 2, 2, dtype=torch.float64)
    alone, shared = nn.BatchNorm2d(4).double(), nn.BatchNorm2d(4).double()
    share_statistics(shared, torch.device("cpu"))
    for _ in range(2):
        assert torch.allclose(shared(rows), alone(torch.cat([rows, rows]))[:3])
    for name, value in alone.state_dict().items():  # means, variances and the counter
        assert torch.allclose(shared.state_dict()[name], value), name


def test_shared_normalisation_of_bfloat16_has_statistics_in_single_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: tensor)  # one process with all rows
    rows = 3 + torch.randn(257, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    alone, shared = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
    share_statistics(shared, torch.device("cpu"))
    expected, found = (norm(rows.bfloat16()) for norm in (alone, shared))
    assert found.dtype == expected.dtype == torch.bfloat16
    assert (found.float() - expected.float()).abs().max() <= 2**-6  # a rounding of values below 4
    for name, value in alone.state_dict().items():
        assert torch.allclose(shared.state_dict()[name], value, rtol=1e-4), name


@pytest.mark.parametrize(("device", "backend"), [("cuda", "nccl"), ("cpu", "gloo")])
def test_a_process_works_on_its_own_gpu_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: str, backend: str
) -> None:
    calls: list[tuple[str, object]] = []
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")  # `connected` sets it: restored after the test
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: calls.append(("GPU", number)))
    monkeypatch.setattr(dist, "destroy_process_group", lambda: calls.append(("end", None)))

    def connect(backend: str, **options: Any) -> None:
        calls.append((backend, (options["rank"], options["world_size"])))

    monkeypatch.setattr(dist, "init_process_group", connect)
    with Processes.connected(1, 3, device, tmp_path / "rendezvous") as processes:
        assert processes.device(torch.device("cuda")) == torch.device("cuda", 1)
        assert processes.device(torch.device("cpu")) == torch.device("cpu")
    own_gpu = [("GPU", 1)] if device == "cuda" else []
    assert calls == [*own_gpu, (backend, (1, 3)), ("end", None)]


def test_a_process_that_failed_does_not_wait_for_the_others_to_close_the_connection(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """torch 2.4 waits for ever there if another process waits for this one; the error was never sent."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **options: None)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: pytest.fail("it would wait"))

    def fail() -> None:
        with Processes.connected(1, 2, "cpu", tmp_path / "rendezvous"):
            raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        fail()


def test_dropout_of_each_process_and_pass_draws_numbers_of_its_own() -> None:
    encoder, cpu = nn.Linear(1, 1), torch.device("cpu")

    def drawn(rank: int) -> list[Tensor]:
        torch.manual_seed(5)  # as at the start of an epoch
        shared = SharedPass(Processes(rank, 2))
        numbers = []
        for _ in range(3):
            with shared._own_random_numbers(encoder, cpu):
                numbers.append(torch.rand(4))
        return [*numbers, torch.rand(4)]

    first, again, second = drawn(0), drawn(0), drawn(1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert torch.equal(first[-1], second[-1]), "the common stream"
    own = {tuple(numbers.tolist()) for numbers in [*first[:-1], *second[:-1]]}
    assert len(own) == 6


@pytest.mark.parametrize("name", ["cap", "role"])
def test_processes_start_an_epoch_with_the_state_of_the_first(name: str) -> None:
    """Weights and averages, and all that a method has learnt: other GPUs may round differently."""
    sent: set[int] = set()

    class Recording(Processes):
        def broadcast(self, tensors: Iterable[Tensor]) -> None:
            sent.update(tensor.data_ptr() for tensor in tensors)

    cls: Any = Plugins(()).methods[name]
    regime = "semi" if "semi" in cls.regimes else min(cls.regimes)
    trainer, _ = toy_trainer(cls, toy("vector"), spec_for(cls, regime))
    trainer.method.setup(trainer.pools)
    trainer.context = dataclasses.replace(trainer.context, processes=Recording(0, 2))
    trainer.start_phase(trainer.warmup_epochs)
    trainer.start_epoch(trainer.warmup_epochs)
    learnt = trainer.method.state_dict()
    assert learnt
    networks = (trainer.model.network, trainer.model.averaged_network)
    for tensors in (learnt, *(network.state_dict() for network in networks)):
        missing = [n for n, t in tensors.items() if t.numel() and t.data_ptr() not in sent]
        assert not missing
