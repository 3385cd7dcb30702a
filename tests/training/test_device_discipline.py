"""No method makes a tensor on the wrong device, or waits for the device inside a step.

Proved without a GPU: torch's fake tensors have shapes and devices but no values. A pretend
accelerator (torch's `meta` device) holds the network, the pools and the batches. Mixing it with the
CPU raises as on a real one, and whatever needs a value (`.item()`, `if tensor`, a boolean index)
cannot be answered and raises too. A dispatch mode of ours refuses copies between the two.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ssmlbench.checks.toy import LABELS, spec_for, toy
from ssmlbench.kit.gradient_step import GradientStep
from ssmlbench.kit.heads import Network, build_projection
from ssmlbench.kit.losses import bce
from ssmlbench.kit.method import Method
from ssmlbench.kit.pools import Batch, Forward, Outputs, Pool, Pools
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.observation import observe
from tests.support.simulated_device import accept_in_fused_optimisers

DEVICE = torch.device("meta")
LABELLED, UNLABELLED = 6, 8  # rows of a batch
WAITS = (DataDependentOutputException, DynamicOutputShapeException)

METHODS = {
    name: cls for name in Plugins().methods if issubclass(cls := Plugins().methods[name], Method)
}
CASES = [
    pytest.param(cls, regime, kind, id=f"{name}-{regime}-{kind}")
    for name, cls in METHODS.items()
    for regime, kind in [
        *((regime, "vector") for regime in sorted(cls.regimes)),
        (min(cls.regimes), "image"),
    ]
]


@pytest.fixture(autouse=True)
def fused_optimisers(monkeypatch: pytest.MonkeyPatch) -> None:
    accept_in_fused_optimisers(monkeypatch)


class Crossing(Exception):
    """A copy between the host and the device in the middle of a step."""


class NoCrossing(TorchDispatchMode):
    """Refuses operations that touch both devices, but for a CPU scalar given to a kernel."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        made = [x for x in tree_leaves(result) if isinstance(x, Tensor)]
        copying = func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
        seen = {x.device.type for x in given + made if copying or x.dim() or x.device == DEVICE}
        if len(seen) > 1:
            raise Crossing(f"{func} works on {' and '.join(sorted(seen))}")
        return result


def move(module: nn.Module) -> None:
    """What `module.to(device)` does; the original cannot swap one fake tensor for another."""
    for owner in module.modules():
        for name, value in owner._parameters.items():
            if value is not None:
                owner._parameters[name] = nn.Parameter(
                    value.detach().to(DEVICE), requires_grad=value.requires_grad
                )
        for name, value in owner._buffers.items():
            if value is not None:
                owner._buffers[name] = value.to(DEVICE)


class Stage:
    """A method with network, pools and batches on the pretend device, led through a run's calls."""

    def __init__(self, cls: type[Method], regime: str, kind: str, **changes: Any):
        self.data, self.spec = toy(kind), spec_for(cls, regime)
        self.method = cls(cls.Config(**{**self.spec.config, **changes}), LABELS)
        self.example = torch.zeros(self.data.train.values.shape[1:])
        encoder = self.data.encoder(self.example)
        projection, width = build_projection(self.spec.projection, encoder.features)
        self.network = Network(encoder, projection, self.method.build_head(width))

    def enter(self) -> None:
        """Everything real so far goes to the pretend device."""
        move(self.network)
        move(self.method)
        seen = observe(self.data.truth, self.spec)
        self.pools = Pools(
            self.pool(len(seen.labelled)),
            self.pool(len(seen.unlabelled)),
            epochs=self.spec.epochs,
            views=frozenset(self.data.train.views),
        )

    def pool(self, rows: int) -> Pool:
        observed = torch.zeros((rows, LABELS), dtype=torch.int8, device=DEVICE)
        prior = torch.full((LABELS,), 0.3, dtype=torch.float64, device=DEVICE)

        def predict(model: str, view: str, wanted: tuple[str, ...]) -> Outputs:
            with torch.no_grad():
                outputs = self.network.eval()(self.inputs(len(observed), view))
            return {name: outputs[name] for name in wanted}

        return Pool(observed, prior, predict)

    def inputs(self, rows: int, view: str) -> Tensor:
        rows *= 4 if view.endswith("-patches") else 1
        return torch.zeros((rows, *self.example.shape), device=DEVICE)

    def averaged(self, inputs: Tensor) -> Outputs:
        with torch.no_grad():
            return self.network(inputs)

    def batches(self, warming_up: bool) -> tuple[Batch, Batch | None]:
        method, there = self.method, {"labelled": LABELLED}
        if len(self.pools.unlabelled) and method.unlabelled_views and not warming_up:
            there["unlabelled"] = UNLABELLED
        views = {"labelled": method.labelled_views, "unlabelled": method.unlabelled_views}
        averaged = {"labelled": (), "unlabelled": method.unlabelled_ema_views}
        forward, ema = (
            Forward(
                network,
                {
                    (pool, v): self.inputs(rows, v)
                    for pool, rows in there.items()
                    for v in asked[pool]
                },
            )
            for network, asked in ((self.network, views), (self.averaged, averaged))
        )
        made = {}
        for pool, count in there.items():
            rows = torch.zeros(count, dtype=torch.long, device=DEVICE)
            made[pool] = Batch(pool, rows, getattr(self.pools, pool).observed[rows], forward, ema)
        return made["labelled"], made.get("unlabelled")

    def start_phase(self) -> list[nn.Parameter]:
        method = self.method
        with torch.no_grad():
            method.start_phase(self.network)
        own = [p for group in method.parameter_groups(1e-3) for p in group["params"]]
        method.optimisers = method.build_optimisers(self.network)
        for optimiser in method.optimisers.values():
            # torch's own arithmetic is not on trial (and counts its steps on the host).
            optimiser.step = lambda closure=None: None  # type: ignore[method-assign, assignment]
        return [*self.network.parameters(), *own]

    def step(self, parameters: list[nn.Parameter], warming_up: bool) -> None:
        self.network.train()
        self.method.train()
        self.method.start_steps(self.network)
        labelled, unlabelled = self.batches(warming_up)
        update = GradientStep(self.network, parameters, forward=labelled.forward, lr=1e-3)
        with NoCrossing():
            terms = self.method.step(labelled, unlabelled, update)
        for name, value in {**terms, **self.method.diagnostics}.items():
            assert value.device == DEVICE, f"{name} is on {value.device}"
            assert value.dim() == 0, f"{name} is not one number"


def lead_through_a_run(cls: type[Method], regime: str, kind: str, **changes: Any) -> None:
    """Set-up, a step of warm-up, and two epochs of a step each, as the trainer calls them."""
    stage = Stage(cls, regime, kind, **changes)
    with FakeTensorMode(allow_non_fake_inputs=True):
        stage.enter()
        stage.method.setup(stage.pools)
        move(stage.method)
        if stage.method.warm_up:
            stage.step(stage.start_phase(), warming_up=True)
        parameters = stage.start_phase()
        for stage.pools.epoch in (3, 4):
            with torch.no_grad():
                stage.method.start_epoch(stage.pools)
            stage.pools.forget()
            stage.step(parameters, warming_up=False)
        for name, value in stage.method.state_dict().items():
            assert value.device == DEVICE, f"{name} is on {value.device}"


@pytest.mark.parametrize(("cls", "regime", "kind"), CASES)
def test_a_run_stays_on_its_device_and_never_waits(
    cls: type[Method], regime: str, kind: str
) -> None:
    lead_through_a_run(cls, regime, kind)


def other_choices(cls: type[Method]) -> Iterator[dict[str, Any]]:
    """Each value of a choice or switch of the Config that is not its default."""
    default = cls.Config()
    for name, kind in typing.get_type_hints(cls.Config).items():
        values = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
        for value in (True, False) if kind is bool else values:
            if value != getattr(default, name):
                yield {name: value}


VARIANTS = [
    pytest.param(cls, change, id=f"{name}-" + ",".join(f"{k}={v}" for k, v in change.items()))
    for name, cls in METHODS.items()
    for change in other_choices(cls)
]


@pytest.mark.parametrize(("cls", "change"), VARIANTS)
def test_so_does_every_variant_of_a_method(cls: type[Method], change: dict[str, Any]) -> None:
    regime = "semi" if "semi" in cls.regimes else min(cls.regimes)
    lead_through_a_run(cls, regime, "vector", **change)


# ------------------------------------------------------------------- methods that must be caught


class _Good(Method):
    name = "good"
    unlabelled_views = ("weak", "strong")

    def loss(self, labelled: Batch, unlabelled: Batch | None) -> dict[str, Tensor]:
        terms = {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}
        if unlabelled is not None:
            terms["unlabelled"] = self.unlabelled_term(unlabelled)
        return terms

    def unlabelled_term(self, batch: Batch) -> Tensor:
        return batch.logits("strong").square().mean()


class MakesTensorsOnTheHost(_Good):
    def unlabelled_term(self, batch: Batch) -> Tensor:
        return bce(batch.logits("strong"), torch.zeros(len(batch.rows), self.labels)).mean()


class KeepsStateOnTheHost(_Good):
    def start_epoch(self, pools: Pools) -> None:
        self.thresholds = torch.full((self.labels,), 0.5)

    def unlabelled_term(self, batch: Batch) -> Tensor:
        return (batch.logits("strong") - self.thresholds).square().mean()


class IndexesWithTheHost(_Good):
    def unlabelled_term(self, batch: Batch) -> Tensor:
        return batch.logits("strong")[torch.arange(2)].mean()


class CopiesToTheHost(_Good):
    def unlabelled_term(self, batch: Batch) -> Tensor:
        return batch.logits("strong").cpu().square().mean().to(DEVICE)


class ReadsANumber(_Good):
    def unlabelled_term(self, batch: Batch) -> Tensor:
        weight = batch.logits("weak").detach().sigmoid().max().item()
        return weight * batch.logits("strong").square().mean()


class AsksATensor(_Good):
    def unlabelled_term(self, batch: Batch) -> Tensor:
        logits = batch.logits("strong")
        return logits.mean() if (logits > 0).any() else logits.sum()


class SelectsByMask(_Good):
    def unlabelled_term(self, batch: Batch) -> Tensor:
        logits = batch.logits("strong")
        return logits[logits > 0].sum()


def test_a_good_method_passes() -> None:
    lead_through_a_run(_Good, "semi", "vector")


@pytest.mark.parametrize(
    "cls", [MakesTensorsOnTheHost, KeepsStateOnTheHost, IndexesWithTheHost, CopiesToTheHost]
)
def test_a_tensor_on_the_wrong_device_is_caught(cls: type[Method]) -> None:
    with pytest.raises((RuntimeError, Crossing), match=r"device|works on cpu and meta"):
        lead_through_a_run(cls, "semi", "vector")


@pytest.mark.parametrize("cls", [ReadsANumber, AsksATensor, SelectsByMask])
def test_waiting_for_the_device_in_a_step_is_caught(cls: type[Method]) -> None:
    with pytest.raises(WAITS):
        lead_through_a_run(cls, "semi", "vector")
