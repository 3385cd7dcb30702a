"""Many labels: no method makes copies of a pool that grow with rows × labels, or it refuses at once."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from typer.testing import CliRunner

from ssmlbench.checks.toy import spec_for
from ssmlbench.cli import app
from ssmlbench.core.errors import UserError
from ssmlbench.core.paths import builtin_root
from ssmlbench.data.task import Card
from ssmlbench.inputs.encoders import Vector
from ssmlbench.inputs.splits import Inputs
from ssmlbench.inputs.views import vector_views
from ssmlbench.kit import pseudo_labels
from ssmlbench.kit.estimator import Estimator
from ssmlbench.kit.method import Method
from ssmlbench.kit.pools import Pool, Pools
from ssmlbench.kit.pseudo_labels import (
    class_aware_labels,
    label_blocks,
    nth_largest,
    pooled_class_aware_labels,
    tied_positives,
)
from ssmlbench.plugins.digest import code_texts
from ssmlbench.plugins.loader import Plugins, load_file
from ssmlbench.protocol.judge import Judge
from ssmlbench.protocol.observation import observe
from ssmlbench.protocol.sealed import SealedTruth
from ssmlbench.runs.resolve import check_label_count
from ssmlbench.training.run_data import RunData
from ssmlbench.training.trainer import Trainer, TrainingContext
from tests.golden.runs import DATA

em_apl = load_file(builtin_root() / "methods" / "em_apl.py")
METHODS = {
    name: cls for name in Plugins().methods if issubclass(cls := Plugins().methods[name], Method)
}
ESTIMATORS = {
    name: cls for name in Plugins().methods if issubclass(cls := Plugins().methods[name], Estimator)
}
ROWS, LABELS, WIDTH = 300, 400, 8  # K × K is larger than N × K


# ------------------------------------------------------------------------------- order statistics


def test_the_nth_largest_of_each_column_whatever_the_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    scores = torch.randn(50, 7).round(decimals=1)  # with ties
    places = torch.randint(1, 51, (3, 7))
    ranked = scores.sort(dim=0, descending=True).values
    expected = ranked.gather(0, places - 1)
    for entries in (2**22, 100, 1):
        monkeypatch.setattr(pseudo_labels, "BLOCK_ENTRIES", entries)
        assert torch.equal(nth_largest(scores, places), expected)
        assert torch.equal(nth_largest(scores, places[0]), expected[0])
    outside = torch.tensor([-3, 0, 1, 50, 51, 99, 2])
    assert torch.equal(nth_largest(scores, outside), nth_largest(scores, outside.clamp(1, 50)))


def test_blocks_cover_every_label_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pseudo_labels, "BLOCK_ENTRIES", 1000)
    for rows, labels in ((10, 7), (300, 7), (5000, 7), (0, 3), (10, 0)):
        covered = [k for block in label_blocks(rows, labels) for k in range(labels)[block]]
        assert covered == list(range(labels))


def by_stable_sort(scores: Tensor, unknown: Tensor, counts: Tensor) -> Tensor:
    order = scores.masked_fill(~unknown, torch.inf).argsort(dim=0, stable=True)
    early = torch.arange(len(scores))[:, None] < counts
    return torch.zeros_like(unknown).scatter(0, order, early) & unknown


@pytest.mark.parametrize("decimals", [1, 6])
def test_the_lowest_unknowns_are_those_of_a_stable_sort(decimals: int) -> None:
    torch.manual_seed(decimals)
    scores, unknown = torch.rand(60, 9).round(decimals=decimals), torch.rand(60, 9) < 0.6
    counts = torch.tensor([0, 1, 2, 5, 10, 20, 30, 60, 3])
    chosen, tied = em_apl.lowest(scores, unknown, counts)
    assert torch.equal(chosen, by_stable_sort(scores, unknown, counts))
    for k in range(9):  # ties: as low as the highest that was chosen, and left out
        highest = scores[chosen[:, k], k].max() if chosen[:, k].any() else -1.0
        left = unknown[:, k] & ~chosen[:, k] & (scores[:, k] == highest)
        assert tied[k] == left.sum()


@pytest.mark.parametrize("name", ["cap", "bbam", "em_apl", "hml"])
def test_pseudo_labels_do_not_depend_on_the_blocks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for entries in (2**22, ROWS * 20):
        monkeypatch.setattr(pseudo_labels, "BLOCK_ENTRIES", entries)
        options = {"pseudo": "cap"} if name == "hml" else {}
        method = METHODS[name](METHODS[name].Config(**options), 60)
        pools = random_pools(60)
        method.setup(pools)
        with torch.no_grad():
            method.start_epoch(pools)
        made.append(method.state_dict())
    for key, value in made[0].items():
        torch.testing.assert_close(made[1][key], value, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("entries", [2**22, 1000, 1])
@pytest.mark.parametrize("rows", [0, 1, 150])
def test_labels_of_a_pool_are_those_of_the_rule_in_a_quarter_of_the_memory(
    rows: int, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pseudo_labels, "BLOCK_ENTRIES", entries)
    torch.manual_seed(rows)
    scores, prior = torch.randn(rows, 30).round(decimals=1), torch.linspace(0, 1, 30).double()
    targets, trust, tied = pooled_class_aware_labels(scores, prior, 0.8, 0.7)
    expected = class_aware_labels(scores, prior, 0.8, 0.7)
    assert {targets.dtype, trust.dtype} == {torch.int8}
    assert torch.equal(targets.float(), expected[0])
    assert torch.equal(trust.float(), expected[1])
    assert torch.equal(tied, tied_positives(expected[0], prior))


def test_the_features_of_both_pools_are_made_once_and_belong_to_the_caller() -> None:
    pools = trainer_of(METHODS["bbam"]).pools
    whole = pools.features("raw")
    assert not pools.unlabelled._outputs  # no second copy
    parts = [pool.features(model="raw", view="weak") for pool in (pools.labelled, pools.unlabelled)]
    assert torch.equal(whole, torch.cat(parts))
    again = pools.features("raw")  # from what the pools keep now
    again.zero_()
    assert torch.equal(whole, torch.cat(parts))


def random_pools(labels: int) -> Pools:
    torch.manual_seed(0)
    prior = torch.linspace(0.01, 0.4, labels).double()

    def pool(rows: int, known: bool) -> Pool:
        outputs = {"logits": torch.rand(rows, labels) * 2 - 1, "features": torch.randn(rows, WIDTH)}
        observed = (torch.rand(rows, labels) < prior).to(torch.int8)
        return Pool(observed if known else observed * 0 - 1, prior, lambda *asked: outputs)

    return Pools(pool(100, True), pool(ROWS - 100, False), epoch=4, epochs=4, warmup_epochs=1)


# ------------------------------------------------------------------------------- memory


class NewTensors(TorchDispatchMode):
    """Bytes and item sizes of every large tensor that is made, views and in-place results left out."""

    def __init__(self, large: int):
        super().__init__()
        self.large = large
        self.made: list[tuple[str, int, int]] = []  # operation, elements, bytes of an element

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if _is(x)}
        for made in tree_leaves(result):
            large = _is(made) and made.numel() >= self.large
            if large and made.untyped_storage()._cdata not in given:
                self.made.append((str(func), made.numel(), made.element_size()))
        return result


def _is(value: Any) -> bool:
    return isinstance(value, Tensor)


def trainer_of(cls: type[Method], **changes: Any) -> Trainer:
    random = np.random.default_rng(0)
    truth = (random.random((ROWS, LABELS)) < 0.05).astype(np.int8)
    truth[np.arange(ROWS), random.integers(0, LABELS, ROWS)] = 1
    inputs = Inputs(torch.randn(ROWS, WIDTH), vector_views())
    regime = "semi" if "semi" in cls.regimes else min(cls.regimes)
    spec = spec_for(cls, regime, projection="none")
    spec = dataclasses.replace(spec, config={**spec.config, **changes})
    judge = Judge(spec, observe(truth, spec), SealedTruth(truth), truth)
    run_data = RunData.beside(judge, inputs, inputs)
    method = cls(cls.Config(**spec.config), LABELS)
    return Trainer(spec, method, Vector(inputs.values[0]), run_data, TrainingContext())


UNLIMITED = {n: cls for n, cls in METHODS.items() if cls.most_labels(cls.Config()) is None}


@pytest.mark.parametrize("name", UNLIMITED)
def test_an_epoch_makes_few_tensors_of_a_pools_size_and_none_that_is_larger(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pseudo_labels, "BLOCK_ENTRIES", ROWS * 20)
    trainer = trainer_of(UNLIMITED[name])
    method, epochs = trainer.method, trainer.spec.epochs
    method.setup(trainer.pools)
    trainer.start_phase(epochs - 1)
    trainer.progress.epoch, trainer.pools.epoch = epochs - 1, epochs
    for pool in (trainer.pools.labelled, trainer.pools.unlabelled):
        for model in ("raw", "ema"):  # what every method may ask for
            pool.logits(model=model)
            pool.features(model=model)
    pool_size = ROWS * LABELS
    with NewTensors(pool_size // 4) as seen, torch.no_grad():
        method.start_epoch(trainer.pools)
    assert all(elements <= pool_size for _, elements, _ in seen.made), seen.made
    whole = [entry for entry in seen.made if entry[1] > pool_size // 2]
    assert all(size < 8 for _, _, size in whole), whole
    assert sum(elements * size for _, elements, size in whole) <= 6 * 4 * pool_size, whole

    trainer.pools.forget()
    method.start_steps(trainer.model.network)
    plan = trainer.batching.plan(epochs - 1, warming_up=False)
    labelled, unlabelled = next(iter(trainer.batching.batches(plan, 0)))
    with NewTensors(pool_size // 2) as seen:
        update = trainer.gradient_step(labelled)
        method.step(labelled, unlabelled, update)
        trainer.apply(update)
    assert not seen.made  # a step costs what its rows cost


# ------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("name", METHODS)
def test_a_method_does_three_thousand_labels_or_names_what_it_can_do(name: str) -> None:
    cls = METHODS[name]
    config = cls.Config()
    most = cls.most_labels(config)
    if most is None:
        cls(config, 3000)
        return
    assert 80 <= most < 3000  # COCO's labels
    cls.check_labels(config, most)
    with pytest.raises(UserError, match=f"{most + 1:,} labels, .*it can handle {most:,};"):
        cls(config, most + 1)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_does_three_thousand_labels_or_names_what_it_can_do(name: str) -> None:
    cls = ESTIMATORS[name]
    config, labelled, rows = cls.Config(), 2_000, 20_000
    most = cls.most_labels_of(config, labelled, rows - labelled)
    if most is None:
        assert name in {"knn", "logistic", "prior"}  # their memory was measured at this size
        return
    assert 80 <= most < 3000
    numbers: dict[str, Any] = {
        "name": "wide", "kind": "vector", "version": 1, "rows": {"train": rows}, "positives": {},
        "fingerprint": "", "flips": False,
    }  # fmt: skip
    check_label_count(cls, config, Card(label_names=["a"] * most, **numbers), labelled)
    with pytest.raises(UserError, match=f"{most + 1:,} labels, .*it can handle {most:,};"):
        check_label_count(cls, config, Card(label_names=["a"] * (most + 1), **numbers), labelled)


@pytest.mark.parametrize("name", ["forest", "self_training_forest"])
def test_a_forest_of_many_labels_takes_two_gigabytes_at_most(name: str) -> None:
    """300 trees of 2 · 50 nodes × 16 bytes are .48 MB per label, and 2 GiB 4,473 labels."""
    forest = ESTIMATORS["forest"]
    assert forest.most_labels_of(forest.Config(), 50, 4_000) == 4473
    cls = ESTIMATORS[name]
    for rows in (4_000, 20_000):
        assert cls.most_labels_of(cls.Config(), rows // 10, rows * 9 // 10) <= 1000
    # Up to a thousand labels a forest may take more: COCO has 80, and 8,200 labelled rows at π = 0.1.
    assert cls.most_labels_of(cls.Config(), 8_200, 73_800) >= 80


def test_the_limit_of_an_estimator_is_no_part_of_its_code_digest() -> None:
    cls = ESTIMATORS["forest"]
    limits = ("most_labels_of", "labels_that_fit", "MOST_BYTES", "MANY_LABELS")
    assert not any(limit in text for text in code_texts(cls) for limit in limits)


def test_the_limits_follow_the_weights_of_the_head() -> None:
    """A hundred million weights: 464³ = 99,897,344 (465³ is more), 1000 · 316² = 99,856,000."""
    drml, mime = METHODS["drml"], METHODS["mime"]
    assert drml.most_labels(drml.Config()) == 464
    assert drml.most_labels(drml.Config(layers="released")) == 316
    assert mime.most_labels(mime.Config()) == 2**25 // (2 * 64 * 256) == 1024
    assert mime.most_labels(mime.Config(code=256)) == 256


def test_a_run_with_too_many_labels_is_refused_before_it_starts(tmp_path: Path) -> None:
    """Codes so wide that four labels are too many."""
    words = (
        "run --method mime --dataset golden-vectors --pi 0.3 --set code=4096 --set hidden=2048 "
        f"--plugin {DATA} --results {tmp_path} --jobs 1"
    )
    said = CliRunner().invoke(app, words.split())
    assert isinstance(said.exception, UserError)
    assert "it can handle 2; choose another method" in str(said.exception)
    assert not list(tmp_path.rglob("spec.json"))
