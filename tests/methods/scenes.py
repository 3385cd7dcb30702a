"""Toy pools and batches with fixed outputs, for tests of whole steps of a method.

The pools give other numbers for another model or view, so that a method that asks for the wrong one fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ssmlbench.kit.method import Method
from ssmlbench.kit.pools import Batch, Forward, Outputs, Pool, Pools
from ssmlbench.plugins.loader import Plugins

PLUGINS = Plugins()


@dataclass(frozen=True)
class Case:
    """Sizes and labels of the pools and batches of a step."""

    labelled: int = 12
    unlabelled: int = 30
    batch: int = 5  # rows of each pool in a step
    labels: int = 4
    positive: tuple[float, ...] = (0.3, 0.5)  # shares of positives, label by label in turn
    levels: int = 0  # distinct outputs; 0: all are distinct
    codes: tuple[int, ...] = (0, 1)  # of labelled rows: -1 makes some of their entries unknown

    def __str__(self) -> str:
        return " ".join(f"{k}={v}" for k, v in vars(self).items() if v != getattr(Case, k))


CASES = [
    Case(),
    Case(positive=(0.0,)),  # no positive at all
    Case(positive=(1.0,)),  # π_k = 1
    Case(positive=(0.0, 1.0, 0.4)),
    Case(positive=(0.01, 0.99)),  # counts that truncate to 0
    Case(labels=1),
    Case(batch=1),
    Case(labelled=1, unlabelled=3, batch=1, labels=2),
    Case(levels=3),  # ties
    Case(levels=1),
    Case(unlabelled=0),  # every row is labelled
]
SOME = [Case(positive=(0.0, 1.0, 0.4)), Case(levels=3)]
PARTIAL = [
    *CASES,
    Case(codes=(-1, 0, 1)),
    Case(codes=(-1, 1)),
    Case(codes=(-1,)),
    Case(codes=(-1,), unlabelled=0, batch=1),
]

MODELS, VIEWS = ("raw", "ema"), ("weak", "strong", "plain")


@dataclass
class Scene:
    """Pools with fixed outputs, and batches of them whose outputs have gradients."""

    case: Case
    cosine: bool = False
    seed: int = 0
    heads: tuple[str, ...] = ("logits",)
    width: int = 3
    epochs: int = 10
    warmup_epochs: int = 3
    pools: Pools = field(init=False)
    leaves: dict[tuple[str, str, str], Tensor] = field(init=False)

    def __post_init__(self) -> None:
        case = self.case
        self.draw = torch.Generator().manual_seed(self.seed)
        shares = torch.tensor([case.positive[k % len(case.positive)] for k in range(case.labels)])
        shape = (case.labelled, case.labels)
        observed = (torch.rand(shape, generator=self.draw) < shares).to(torch.int8)
        if -1 in case.codes:
            seen = torch.tensor([code in case.codes for code in (0, 1)])[observed.long()]
            seen &= torch.rand(shape, generator=self.draw) < 0.5
            observed = torch.where(seen, observed, -1).to(torch.int8)
        self.observed = observed
        self.prior = (observed == 1).double().mean(0)
        nothing = torch.full((case.unlabelled, case.labels), -1, dtype=torch.int8)
        self.all_observed = torch.cat([observed, nothing])
        self.outputs: dict[tuple[str, str, str], Outputs] = {}
        self.new_outputs()
        self.pools = Pools(
            self._pool("labelled", observed),
            self._pool("unlabelled", nothing),
            epochs=self.epochs,
            warmup_epochs=self.warmup_epochs,
            views=frozenset(VIEWS),
        )

    def numbers(self, *shape: int) -> Tensor:
        made = torch.randn(shape, generator=self.draw, dtype=torch.float64)
        if self.cosine:
            made = made.tanh() * 0.95
        if self.case.levels:
            steps = torch.linspace(-0.8, 0.8, self.case.levels, dtype=torch.float64)
            made = steps[torch.randint(0, self.case.levels, shape, generator=self.draw)]
        return made

    def new_outputs(self) -> None:
        """Other outputs, as after an epoch of training."""
        for pool, rows in (("labelled", self.case.labelled), ("unlabelled", self.case.unlabelled)):
            for model in MODELS:
                for view in VIEWS:
                    made = {name: self.numbers(rows, self.case.labels) for name in self.heads}
                    shape = (rows, self.width)
                    features = torch.randn(shape, generator=self.draw, dtype=torch.float64)
                    self.outputs[pool, model, view] = {**made, "features": features}

    def _pool(self, name: str, observed: Tensor) -> Pool:
        def predict(model: str, view: str, names: tuple[str, ...]) -> Outputs:
            made = self.outputs[name, model, view]
            return {key: made[key].clone() for key in {*names, "logits"} if key in made}

        return Pool(observed, self.prior, predict)

    def batches(self) -> tuple[Batch, Batch | None]:
        """The batches of a step, with new leaves: `self.leaves[pool, view, output]`."""
        case = self.case
        rows = {"labelled": torch.randperm(case.labelled, generator=self.draw)[: case.batch]}
        if case.unlabelled:
            rows["unlabelled"] = torch.randperm(case.unlabelled, generator=self.draw)[: case.batch]
        self.rows = rows
        self.leaves = {
            (pool, view, name): self.numbers(len(where), case.labels).requires_grad_()
            for pool, where in rows.items()
            for view in VIEWS
            for name in self.heads
        }
        self.averaged = {key: self.numbers(*leaf.shape) for key, leaf in self.leaves.items()}
        parts = {(pool, view) for pool, view, _ in self.leaves}
        forwards = []
        for source in (self.leaves, self.averaged):
            made = FixedForward({p: {n: source[*p, n] for n in self.heads} for p in parts})
            forwards.append(made)
        found = {
            pool: Batch(pool, where, getattr(self.pools, pool).observed[where], *forwards)
            for pool, where in rows.items()
        }
        self.known = {pool: batch.observed for pool, batch in found.items()}
        return found["labelled"], found.get("unlabelled")

    def leaf(self, pool: str, view: str, name: str = "logits") -> Tensor:
        return self.leaves[pool, view, name]


class FixedForward(Forward):
    """Outputs that are there already."""

    def __init__(self, outputs: dict[tuple[str, str], Outputs]):
        super().__init__(lambda x: {}, {})
        self._given = outputs

    def __getitem__(self, part: tuple[str, str]) -> Outputs:
        return self._given[part]


def built(name: str, labels: int, **options: Any) -> Any:
    cls = PLUGINS.methods[name]
    assert issubclass(cls, Method)
    return cls(cls.Config(**options), labels)


def epochs_of(method: Any, scene: Scene, count: int = 2) -> Iterator[int]:
    """Start some epochs after warm-up, each with other outputs of the network."""
    method.setup(scene.pools)
    for name, state in method.named_buffers():
        if state.is_floating_point():
            setattr(method, name, state.double())
    for epoch in range(scene.warmup_epochs + 1, scene.warmup_epochs + 1 + count):
        scene.new_outputs()
        scene.pools.epoch = epoch
        with torch.no_grad():
            method.start_epoch(scene.pools)
        scene.pools.forget()
        yield epoch


def same(scene: Scene, terms: dict[str, Tensor], expected: Tensor, *more: Tensor) -> None:
    """The summed terms and their gradients are those of the formula. more: other leaves."""
    total = sum(term for term in terms.values())
    torch.testing.assert_close(total.double(), expected, rtol=1e-5, atol=1e-7)
    leaves = [*scene.leaves.values(), *more]
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    wanted = torch.autograd.grad(expected, leaves, allow_unused=True)
    for one, other, leaf in zip(found, wanted, leaves, strict=True):
        zero = torch.zeros_like(leaf)
        torch.testing.assert_close(
            zero if one is None else one, zero if other is None else other, rtol=1e-4, atol=1e-6
        )


def both_pools(scene: Scene, view: str = "strong") -> tuple[Tensor, Tensor]:
    """Logits and observed labels of the step's rows."""
    logits = [scene.leaf(pool, view) for pool in scene.rows]
    return torch.cat(logits), torch.cat(list(scene.known.values()))


def table_rows(scene: Scene) -> list[int]:
    """The step's rows in a table of both pools."""
    first = {"labelled": 0, "unlabelled": scene.case.labelled}
    return [first[pool] + int(row) for pool, rows in scene.rows.items() for row in rows]
