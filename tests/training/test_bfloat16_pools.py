"""Ranks in bfloat16 are those of float32: heads compute in single precision whatever is around them.

Small pools hide the fault: bfloat16 has 256 values between two powers of two, and ties at a quota are
many only where rows are many.
"""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from functools import lru_cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from ssmlbench.checks.toy import LABELS, spec_for, toy, toy_trainer
from ssmlbench.core.seeds import stream_seed
from ssmlbench.core.spec import Precision
from ssmlbench.inputs.splits import Inputs
from ssmlbench.inputs.views import vector_views
from ssmlbench.kit import heads
from ssmlbench.kit.heads import CosineHead, Network
from ssmlbench.kit.method import Method
from ssmlbench.kit.pseudo_labels import class_aware_labels, tied_positives
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.judge import Judge
from ssmlbench.protocol.observation import observe
from ssmlbench.protocol.sealed import SealedTruth
from ssmlbench.training.run_data import RunData
from ssmlbench.training.trainer import Trainer, TrainingContext

ROWS, WIDTH = 12_000, 24
METHODS = {
    name: cls for name in Plugins().methods if issubclass(cls := Plugins().methods[name], Method)
}


@lru_cache
def large_pool(rows: int) -> tuple[Inputs, np.ndarray]:
    random = np.random.default_rng(3)
    labels = (random.random((rows, LABELS)) < [0.5, 0.3, 0.1, 0.02, 0.01]).astype(np.int8)
    labels[np.arange(rows), random.integers(0, LABELS, rows)] = 1
    values = labels @ random.normal(size=(LABELS, WIDTH)) + random.normal(size=(rows, WIDTH))
    return Inputs(torch.from_numpy(values).float(), vector_views()), labels


def trainer_of(cls: type[Method], pool: tuple[Inputs, np.ndarray], precision: Precision) -> Trainer:
    """Ready for the last epoch. The projection computes in the run's precision, as an encoder does."""
    inputs, labels = pool
    regime = "semi" if "semi" in cls.regimes else min(cls.regimes)
    spec = spec_for(cls, regime, precision=precision, projection="mlp")
    judge = Judge(spec, observe(labels, spec), SealedTruth(labels), labels)
    run_data = RunData.beside(judge, inputs, inputs)
    torch.manual_seed(stream_seed(spec.seed, "method"))
    method = cls(cls.Config(**spec.config), LABELS)
    torch.manual_seed(stream_seed(spec.seed, "network"))
    encoder = toy("vector").encoder(inputs.values[0])
    trainer = Trainer(spec, method, encoder, run_data, TrainingContext())
    torch.manual_seed(0)
    method.setup(trainer.pools)
    trainer.pools.epoch = spec.epochs
    return trainer


def distinct(scores: Tensor) -> Tensor:
    return torch.tensor([len(column.unique()) for column in scores.T])


@pytest.mark.parametrize("rows", [ROWS, pytest.param(190_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("cls", METHODS.values(), ids=METHODS)
def test_scores_and_quotas_of_a_large_pool_are_those_of_float32(
    cls: type[Method], rows: int
) -> None:
    compare_precisions(cls, rows)


@pytest.mark.parametrize("name", ["bbam", "cap"])
def test_a_head_inside_autocast_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "single_precision", lambda device: nullcontext())
    with pytest.raises(AssertionError):
        compare_precisions(METHODS[name], ROWS)


def compare_precisions(cls: type[Method], rows: int) -> None:
    """Check that ranks, quotas and pseudo-positives in bfloat16 are those of float32."""
    made = {}
    for precision in ("float32", "bfloat16"):
        trainer = trainer_of(cls, large_pool(rows), precision)  # type: ignore[arg-type]
        pool = trainer.pools.unlabelled if len(trainer.pools.unlabelled) else trainer.pools.labelled
        with torch.no_grad():
            scores = trainer.method.test_scores(pool)
            targets, _ = class_aware_labels(scores, pool.prior)
            trainer.method.start_epoch(trainer.pools)
        made[precision] = (scores, tied_positives(targets, pool.prior), trainer)
    exact, short = made["float32"], made["bfloat16"]
    assert not torch.equal(exact[0], short[0])  # the projection did compute in bfloat16
    assert (distinct(short[0]) > 0.97 * distinct(exact[0])).all()
    assert short[1] <= exact[1] + LABELS  # a tie for each label, by chance
    quotas = [trainer.method.pseudo_labels() for _, _, trainer in (exact, short)]
    if quotas[0] is not None and quotas[1] is not None:
        compare_pseudo_labels(quotas[0], quotas[1])


def compare_pseudo_labels(exact: tuple[Tensor, Tensor], short: tuple[Tensor, Tensor]) -> None:
    """Check that each label has as many trusted rows, and as many positives or the same soft labels."""
    targets = [made[0] for made in (exact, short)]
    trusted = [(made[1] > 0).expand_as(made[0]) for made in (exact, short)]
    assert_same_counts(*trusted)
    if all(((x == 0) | (x == 1)).all() for x in targets):
        assert_same_counts(*((x == 1) & t for x, t in zip(targets, trusted, strict=True)))
        return
    # How many soft labels pass 0.5 says little where they crowd there: each label's are compared in order.
    for k in range(LABELS):
        a, b = (x[t[:, k], k].sort().values for x, t in zip(targets, trusted, strict=True))
        both = min(len(a), len(b))
        assert (a[:both] - b[:both]).abs().max() < 0.005


def assert_same_counts(exact: Tensor, short: Tensor) -> None:
    counts = torch.stack([exact.sum(0), short.sum(0)])
    assert (counts.diff(dim=0).abs() <= 2 + 0.002 * counts[0]).all()


def test_a_head_sees_single_precision_inside_autocast() -> None:
    network = Network(torch.nn.Identity(), torch.nn.Linear(8, 16), CosineHead(16, 3))
    with torch.autocast("cpu", torch.bfloat16):
        assert network.projection(torch.randn(4, 8)).dtype == torch.bfloat16
        outputs = network(torch.randn(4, 8))
        assert {value.dtype for value in outputs.values()} == {torch.float32}
        expected = network.head.float()(outputs["features"])
    exact = network.head(outputs["features"])
    assert torch.equal(outputs["logits"], exact)
    assert not torch.equal(outputs["logits"], expected.float())


@pytest.mark.parametrize("path", ["whole", "pieces", "compiled"])
@pytest.mark.parametrize("name", ["bce", "bbam"])
def test_heads_compute_in_single_precision_on_every_path_of_rows(name: str, path: str) -> None:
    spec = spec_for(METHODS[name], "semi", precision="bfloat16")
    trainer, _ = toy_trainer(METHODS[name], toy("image"), spec)
    model, rows = trainer.model, trainer.batching.inputs.read(np.arange(8))
    if path == "pieces":
        model.encoding.micro_batch = 3
    if path == "compiled":
        model.compiled = SimpleNamespace(run=lambda encoder, call: call(encoder))  # type: ignore[assignment]
    outputs = model.predict(model.averaged_network, rows.view("plain", torch.Generator()))
    exact = model.averaged_network.head(outputs["features"])
    assert torch.equal(outputs["logits"], exact)


@pytest.mark.parametrize("name", ["bce", "bbam"])
def test_scores_that_are_handed_in_have_the_values_of_float32(name: str) -> None:
    def handed_in(precision: Precision) -> Tensor:
        evaluator = trainer_of(METHODS[name], large_pool(ROWS), precision).evaluator
        return torch.from_numpy(evaluator.scores(evaluator.run_data.train))

    exact, short = handed_in("float32"), handed_in("bfloat16")
    assert (distinct(short) > 0.97 * distinct(exact)).all()


def test_pseudo_positives_beyond_the_quota_are_counted_as_ties() -> None:
    scores = torch.tensor([[0.9, 0.1], [0.5, 0.2], [0.5, 0.3], [0.1, 0.4]])
    prior = torch.tensor([0.5, 0.25]).double()  # two of four, one of four
    targets, _ = class_aware_labels(scores, prior)
    assert targets.sum(0).tolist() == [3, 1]  # two rows share the second place
    assert tied_positives(targets, prior).item() == 1


@pytest.mark.parametrize(
    ("name", "changes"), [("cap", {}), ("bbam", {}), ("hml", {"pseudo": "cap"})]
)
def test_ties_at_the_quota_are_in_the_history(name: str, changes: dict[str, str]) -> None:
    cls, data = METHODS[name], toy("vector")
    same = dataclasses.replace(
        data,
        train=Inputs(
            torch.ones_like(data.train.values), {**data.train.views, "weak": lambda x, _: x}
        ),
    )
    spec = spec_for(cls, "semi")
    spec = dataclasses.replace(spec, config={**spec.config, **changes})
    trainer, _ = toy_trainer(cls, same, spec)
    trainer.model.batch_rows = len(
        data.train
    )  # in a smaller batch a product is rounded differently
    history = trainer.train().history
    assert all("tied_positives" not in row for row in history[: spec.warmup_epochs])
    rows = len(observe(data.truth, spec).unlabelled)
    quota = sum(int(share * rows) for share in observe(data.truth, spec).prior)
    # Equal rows have one score a label: every row of a label with a quota is tied.
    for row in history[spec.warmup_epochs :]:
        assert row["tied_positives"] == rows * LABELS - quota
