"""Warnings of `ssmlbench check`: likely mistakes that break no contract."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import io
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ssmlbench.checks.toy import LABELS, same_bits, spec_for, toy, toy_trainer, train
from ssmlbench.inputs.splits import Inputs
from ssmlbench.kit.contract import build_method
from ssmlbench.kit.method import Method
from ssmlbench.kit.pools import Batch
from ssmlbench.plugins.contract_names import engine_bases
from ssmlbench.plugins.source_lines import defined_at, file_of, own_classes, syntax_of
from ssmlbench.protocol.observation import observe
from ssmlbench.protocol.regimes import REGIMES
from ssmlbench.training.trainer import Trainer


def method_warnings(cls: type[Method]) -> Iterator[str]:
    """Yield the likely mistakes in a method that conforms, a line each."""
    yield from unread_hyperparameters(cls)
    yield from weights_of_two_optimisers(cls)
    printed = io.StringIO()
    alive: dict[str, bool] = {}
    with contextlib.redirect_stdout(printed), targets_below_zero() as counted:
        for regime in sorted(cls.regimes):
            for name, moves in terms_that_move(cls, regime).items():
                alive[name] = alive.get(name, False) or moves
    if counted:
        function = "loss" if cls.step is Method.step else "step"
        yield (
            f"{defined_at(cls, function)}: unknown labels (-1 in `observed`) are targets of a "
            "cross-entropy: take the known ones, e.g. entries[observed >= 0].mean()"
        )
    for name in sorted(name for name, moves in alive.items() if not moves):
        yield (
            f"{defined_at(cls, 'loss', name)}: term {name!r} is 0, with no gradient, in every step on "
            "the toy data: is it switched off, or its threshold never reached?"
        )
    if printed.getvalue().strip():
        first = printed.getvalue().strip().splitlines()[0]
        yield f"it prints ({first[:40]!r}): put numbers into self.diagnostics, for history.csv"
    if all(alive.values()) and ignores_unlabelled_rows(cls):
        yield (
            f"{defined_at(cls, 'unlabelled_views')}: other unlabelled rows give the same bits: if it "
            "learns from labelled rows only, write unlabelled_views = ()"
        )


def weights_of_two_optimisers(cls: type[Method]) -> Iterator[str]:
    """Yield a line for a method's parameter that its own optimiser and the trainer's both move."""
    if cls.build_optimisers is Method.build_optimisers:
        return
    trainer, _ = toy_trainer(cls, toy("vector"), spec_for(cls, min(cls.regimes)))
    trainer.train()
    moved = {id(weight) for weight in trainer.parameters}
    names = {id(weight): name for name, weight in trainer.method.named_parameters()}
    for optimiser in trainer.method.optimisers.values():
        for weight in itertools.chain(*(group["params"] for group in optimiser.param_groups)):
            if id(weight) in moved and id(weight) in names:
                yield (
                    f"{defined_at(cls, 'build_optimisers')}: the trainer's optimiser moves "
                    f"self.{names[id(weight)]} too: define parameter_groups(self, lr), and leave it out"
                )


@contextlib.contextmanager
def targets_below_zero() -> Iterator[list[bool]]:
    """Watch torch's cross-entropy. The list has an entry if a target below 0 reached a gradient.

    An entry that is masked afterwards has no gradient.
    """
    plain = F.binary_cross_entropy_with_logits
    found: list[bool] = []

    def watched(logits: Tensor, target: Tensor, *args: Any, **options: Any) -> Tensor:
        entries = plain(logits, target, *args, **options)
        unknown = (target < 0).detach()
        if entries.requires_grad and bool(unknown.any()):
            whole = entries.shape == unknown.shape  # else a mean or a sum, of all entries

            def reached(gradient: Tensor) -> None:
                if not found and bool((gradient[unknown] if whole else gradient).any()):
                    found.append(True)

            entries.register_hook(reached)
        return entries

    F.binary_cross_entropy_with_logits = watched  # type: ignore[assignment]
    try:
        yield found
    finally:
        F.binary_cross_entropy_with_logits = plain


def unread_hyperparameters(cls: type[Any]) -> Iterator[str]:
    """Yield a line for each hyper-parameter that no code of the class and its bases reads."""
    own = list(_nodes(own_classes(cls)))
    if any(getattr(node, "id", "") in ("getattr", "asdict", "vars", "astuple") for node in own):
        return  # fields may be read by computed names
    nodes = itertools.chain(own, _nodes(engine_bases(cls)))
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    for field in dataclasses.fields(cls.Config):
        if field.name not in read:
            where = defined_at(cls, f"Config.{field.name}")
            yield f"{where}: hyper-parameter {field.name} is never read"


def _nodes(classes: list[type[Any]]) -> Iterator[ast.AST]:
    """Every node of the files of some classes."""
    for cls in classes:
        file = file_of(cls)
        tree = syntax_of(file) if file else None
        yield from ast.walk(tree) if tree else ()


def terms_that_move(cls: type[Method], regime: str) -> dict[str, bool]:
    """Train on toy vectors. Returns, for each term, whether it was ever not 0 or had a gradient."""
    trainer, _ = toy_trainer(cls, toy("vector"), spec_for(cls, regime))
    moved: dict[str, bool] = {}
    if type(trainer.method).step is Method.step:
        _watch(trainer, moved)
        trainer.train()
        return moved
    for row in trainer.train().history:  # its own step: only the values are known
        for name, value in row.items():
            if name.startswith("loss_"):
                term = name.removeprefix("loss_")
                moved[term] = moved.get(term, False) or value != 0
    return moved


def _watch(trainer: Trainer, moved: dict[str, bool]) -> None:
    """Wrap the method's loss by a function that records the terms that move."""
    loss = trainer.method.loss

    def watched(labelled: Batch, unlabelled: Batch | None) -> dict[str, Tensor]:
        terms = loss(labelled, unlabelled)
        for name, term in terms.items():
            if not moved.get(name):
                moved[name] = bool(term.detach() != 0) or _has_gradient(term, trainer)
        return terms

    trainer.method.loss = watched  # type: ignore[method-assign]


def _has_gradient(term: Tensor, trainer: Trainer) -> bool:
    if not term.requires_grad:
        return False
    gradients = torch.autograd.grad(term, trainer.parameters, retain_graph=True, allow_unused=True)
    return any(gradient is not None and bool(gradient.any()) for gradient in gradients)


def ignores_unlabelled_rows(cls: type[Method]) -> bool:
    """Whether a method that declares both pools gives the same bits with other unlabelled rows."""
    regimes = sorted(regime for regime in cls.regimes if REGIMES[regime].splits_rows)
    if not regimes:
        return False
    data, spec = toy("vector"), spec_for(cls, regimes[0])
    rows = observe(data.truth, spec).unlabelled
    if not len(rows) or build_method(cls, cls.Config(), LABELS).uses != "both pools":
        return False
    values = data.train.values.clone()
    values[np.asarray(rows)] = 3 * values[rows].flip(-1)
    other = dataclasses.replace(data, train=Inputs(values, data.train.views))
    return same_bits(train(cls, data, spec), train(cls, other, spec))
