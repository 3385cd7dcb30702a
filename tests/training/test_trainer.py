"""The training loop: steps, schedule, average, forward passes, selection. On toy data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ssmlbench.checks.toy import LABELS, spec_for, toy, toy_trainer
from ssmlbench.inputs.splits import Inputs
from ssmlbench.inputs.transfer import Transfer
from ssmlbench.inputs.views import natural_views
from ssmlbench.kit.losses import bce
from ssmlbench.kit.method import Method
from ssmlbench.plugins.loader import Plugins
from ssmlbench.protocol.decisions import RULES, DecisionRule
from ssmlbench.protocol.judge import Judge
from ssmlbench.protocol.metrics import average_precision
from ssmlbench.training.checkpoint import Checkpoint
from ssmlbench.training.ema import Ema
from ssmlbench.training.evaluation import Outcome
from ssmlbench.training.run_data import RunData
from ssmlbench.training.trainer import Trainer, TrainingContext


class Watch(Method):
    """Trains on both pools, and remembers what it was given."""

    name = "watch"
    regimes = {"semi", "full"}
    seen: list[tuple[int, int | None]]

    def __init__(self, config: Any, labels: int):
        super().__init__(config, labels)
        self.seen = []
        self.started: list[int] = []

    def start_epoch(self, pools):  # type: ignore[no-untyped-def]
        self.started.append(pools.epoch)

    def loss(self, labelled, unlabelled):  # type: ignore[no-untyped-def]
        self.seen.append((len(labelled.rows), None if unlabelled is None else len(unlabelled.rows)))
        terms = {"labelled": bce(labelled.logits("strong"), labelled.observed.clamp(min=0)).mean()}
        if unlabelled is not None:
            assert (unlabelled.observed == -1).all()
            terms["unlabelled"] = bce(unlabelled.logits("strong"), unlabelled.observed * 0).mean()
        return terms


def trainer_for(
    folder: Path, cls: type[Method] = Watch, regime: str = "semi", **changes: Any
) -> Trainer:
    data, spec = toy("vector"), spec_for(cls, regime, **changes)
    run_data = RunData.beside(Judge.of(spec, data.truth, data.test_truth), data.train, data.test)
    torch.manual_seed(0)
    encoder = data.encoder(data.train.values[0])
    method = cls(cls.Config(), LABELS)
    context = TrainingContext(checkpoint=Checkpoint(folder / "checkpoint.safetensors"))
    return Trainer(spec, method, encoder, run_data, context)


def outcome_of(trainer: Trainer) -> Outcome:
    """Train, and put what the judge found beside it."""
    return Outcome.of(trainer.train(), trainer.evaluator.run_data.judge.judgements)  # type: ignore[attr-defined]


# The toy has 72 rows; at π = 0.3 that is 21 labelled and 51 unlabelled, B_u = 16 and B_l = 8.


def test_an_epoch_is_a_pass_over_the_unlabelled_pool_in_every_phase(tmp_path: Path) -> None:
    trainer = trainer_for(tmp_path)
    outcome = outcome_of(trainer)
    seen = trainer.method.seen  # type: ignore[union-attr]
    assert [row["steps"] for row in outcome.history] == [4, 8, 12, 16, 20]  # ⌈51/16⌉ = 4
    assert seen[:8] == [(16, None)] * 8  # warm-up: labelled rows only, a full batch of them
    assert seen[8:12] == [(8, 16), (8, 16), (8, 16), (8, 3)]
    assert trainer.method.started == [3, 4, 5]  # type: ignore[union-attr]


def test_the_released_count_makes_warm_up_epochs_short(tmp_path: Path) -> None:
    outcome = outcome_of(trainer_for(tmp_path, epoch_count="labelled"))
    assert [row["steps"] for row in outcome.history] == [2, 4, 8, 12, 16]  # ⌈21/16⌉ = 2


def test_with_every_row_labelled_an_epoch_is_one_pass(tmp_path: Path) -> None:
    trainer = trainer_for(tmp_path, regime="full")
    trainer.train()
    seen = trainer.method.seen  # type: ignore[union-attr]
    assert seen[:5] == [(16, None)] * 4 + [(8, None)]  # 72 = 4 × 16 + 8


def test_labelled_rows_are_cycled_evenly(tmp_path: Path) -> None:
    trainer = trainer_for(tmp_path)
    counts = torch.bincount(
        torch.cat(trainer.batching.plan(0, warming_up=True).labelled), minlength=21
    )
    assert counts.max() - counts.min() <= 1


def test_a_step_is_one_forward_pass_over_all_views(tmp_path: Path) -> None:
    trainer = trainer_for(tmp_path, warmup_epochs=0, epochs=1)
    sizes = []
    trainer.model.network.register_forward_pre_hook(
        lambda module, inputs: sizes.append(len(inputs[0])) if module.training else None
    )
    trainer.train()
    assert sizes == [24, 24, 24, 11]


@pytest.mark.parametrize("deferred", [False, True], ids=["on the CPU", "on the device"])
def test_all_views_of_a_step_come_from_one_read_of_each_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deferred: bool
) -> None:
    """Those of the averaged network too."""
    reads: list[int] = []

    class Counted(Inputs):
        def prepared(self, rows: Any) -> torch.Tensor:
            reads.append(len(rows))
            return super().prepared(rows)

    monkeypatch.setattr(Transfer, "applies_views", deferred)
    monkeypatch.setattr(Watch, "unlabelled_views", ("weak", "strong"))
    monkeypatch.setattr(Watch, "unlabelled_ema_views", ("weak", "plain"))
    batching = trainer_for(tmp_path).batching
    images = torch.zeros(72, 3, 16, 16, dtype=torch.uint8)
    batching.inputs = Counted(images, natural_views(flips=False))
    batching.step_inputs(batching.plan(0, warming_up=False), 0)
    assert reads == [8, 16]


def test_views_nobody_declared_are_not_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_for(tmp_path)
    asked: list[str] = []

    def noted(name: str, view: Any) -> Any:
        def take(rows: Any, generator: Any) -> Any:
            asked.append(name)
            return view(rows, generator)

        return take

    inputs = trainer.evaluator.run_data.train
    views = {name: noted(name, view) for name, view in inputs.views.items()}
    monkeypatch.setattr(inputs, "views", views)
    trainer.train()
    # plain: the scores at the end; weak: what the judge notes of some rows, outside the steps
    assert set(asked) == {"strong", "plain", "weak"}
    assert asked.count("weak") <= trainer.spec.epochs


def test_every_batch_of_a_pass_draws_views_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, seen = trainer_for(tmp_path), []
    trainer.model.batch_rows, predict = 4, trainer.model.predict

    def watched(network: Any, inputs: torch.Tensor, *rest: Any) -> Any:
        seen.append(inputs.clone())
        return predict(network, inputs, *rest)

    monkeypatch.setattr(trainer.model, "predict", watched)
    inputs, same_row = trainer.evaluator.run_data.train, np.zeros(8, dtype=np.int64)
    for purpose in (("a", 1), ("a", 2), ("a", 1)):
        trainer.evaluator.predict("raw", inputs, same_row, "strong", purpose, ("logits",))
    first, second, other, _, *again = seen
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)
    assert [torch.equal(*pair) for pair in zip((first, second), again, strict=True)] == [True, True]


def test_whole_pool_outputs_are_computed_once_for_two_callers(tmp_path: Path) -> None:
    trainer = trainer_for(tmp_path)
    passes = []
    trainer.model.ema.network.register_forward_pre_hook(lambda module, inputs: passes.append(1))
    pool = trainer.pools.unlabelled
    first = pool.features("ema", "weak")
    assert torch.equal(pool.logits("ema", "weak"), trainer.model.ema.network.head(first))
    assert pool.features("ema", "weak") is first
    assert len(passes) == 1
    trainer.pools.forget()
    pool.logits("ema", "weak")
    assert len(passes) == 2


def test_the_schedule_ends_where_the_steps_end(tmp_path: Path) -> None:
    history = trainer_for(tmp_path, lr=1e-3).train().history
    final = 1e-3 / 25 / 1e4
    assert history[1]["lr"] == pytest.approx(final)  # the end of warm-up
    assert history[4]["lr"] == pytest.approx(final)  # the end of the run


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_run_of_very_few_steps_has_a_schedule_too(tmp_path: Path, epochs: int) -> None:
    outcome = outcome_of(trainer_for(tmp_path, epochs=epochs, warmup_epochs=0, batch_size=26))
    assert outcome.steps == 2 * epochs  # ⌈51/26⌉ = 2


def test_the_average_warms_up_and_restarts() -> None:
    network = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(network.weight)
    ema = Ema(network, decay=0.5)
    nn.init.ones_(network.weight)
    ema.update()  # decay (1 + 0)/(10 + 0) = 0.1: 0.1 × 0 + 0.9 × 1
    assert float(ema.network.weight) == pytest.approx(0.9)
    nn.init.zeros_(network.weight)
    ema.update()  # decay 2/11
    assert float(ema.network.weight) == pytest.approx(0.9 * 2 / 11)
    for _ in range(20):
        ema.update()
    before = float(ema.network.weight)
    nn.init.ones_(network.weight)
    ema.update()  # 23/32 is past 0.5, which stays
    assert float(ema.network.weight) == pytest.approx(0.5 * before + 0.5)
    ema.restart()
    assert float(ema.network.weight) == 1.0
    assert ema.updates == 0


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_the_average_has_the_precision_of_the_weights(kind: torch.dtype) -> None:
    # 1e-4 a step is less than a shorter type can tell from 1
    network = nn.Linear(1, 1, bias=False, dtype=kind)
    nn.init.ones_(network.weight)
    ema, expected = Ema(network, decay=0.9997), 1.0
    for step in range(50):
        nn.init.constant_(network.weight, 1 + 1e-4 * step)
        ema.update()
        decay = (1 + step) / (10 + step)
        expected = decay * expected + (1 - decay) * (1 + 1e-4 * step)
    assert ema.network.weight.dtype == kind
    assert float(ema.network.weight) == pytest.approx(expected, rel=4 * torch.finfo(kind).eps)


def test_the_average_takes_normalisation_statistics_along() -> None:
    network = nn.BatchNorm1d(2)
    ema = Ema(network, decay=0.9)
    network(torch.full((4, 2), 10.0) + torch.randn(4, 2))
    ema.update()
    assert torch.allclose(ema.network.running_mean, 0.9 * network.running_mean)  # type: ignore[operator, arg-type]
    assert ema.network.num_batches_tracked == 1


@pytest.mark.parametrize("selection", ["val", "oracle"])
def test_selection_keeps_the_best_epochs_scores(tmp_path: Path, selection: str) -> None:
    trainer = trainer_for(tmp_path, selection=selection)
    outcome = outcome_of(trainer)
    values = [row[f"{selection}_map"] for row in outcome.history]
    assert outcome.selected_epoch == int(np.argmax(values)) + 1
    if selection == "oracle":
        truth = toy("vector").test_truth == 1
        found = float(np.nanmean(average_precision(outcome.scores, truth)))
        assert found == pytest.approx(max(values))


def test_the_last_epoch_is_taken_by_default(tmp_path: Path) -> None:
    outcome = outcome_of(trainer_for(tmp_path))
    assert outcome.selected_epoch == 5
    assert not any("_map" in key for row in outcome.history for key in row)


def test_calibrated_thresholds_give_the_labelled_rate_on_the_training_rows(tmp_path: Path) -> None:
    trainer = trainer_for(tmp_path)
    outcome = outcome_of(trainer)
    seen = trainer.evaluator.run_data.observation
    rows = np.concatenate([seen.labelled, seen.unlabelled])
    rate = (
        trainer.evaluator.scores(trainer.evaluator.run_data.train, rows)
        >= outcome.rule_parameters["thresholds"]
    ).mean(axis=0)
    assert np.allclose(rate, seen.prior, atol=0.5 / len(rows) + 1e-9)


def test_every_fitted_rule_leaves_its_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = DecisionRule(
        "median",
        "label sets by the median training score (median)",
        lambda scores, truth, p: scores > p["medians"],
        fit=lambda scores, prior: {"medians": np.median(scores, axis=0)},
        parameters=("medians",),
    )
    monkeypatch.setitem(RULES, "median", rule)
    trainer = trainer_for(tmp_path)
    outcome = outcome_of(trainer)
    seen = trainer.evaluator.run_data.observation
    rows = np.concatenate([seen.labelled, seen.unlabelled])
    scores = trainer.evaluator.scores(trainer.evaluator.run_data.train, rows)
    assert np.allclose(outcome.rule_parameters["medians"], np.median(scores, axis=0))


def test_history_has_every_column_a_reader_wants(tmp_path: Path) -> None:
    cap = Plugins().methods["cap"]
    last = outcome_of(trainer_for(tmp_path, cap)).history[-1]
    assert {
        "epoch",
        "phase",
        "lr",
        "seconds",
        "samples_per_second",
        "peak_memory_mb",
        "loss_labelled",
        "loss_unlabelled",
        "pseudo_precision",
        "pseudo_recall",
    } <= set(last)


class Counting(Watch):
    """Its losses and its diagnostic are numbers that tell the steps apart."""

    def loss(self, labelled, unlabelled):  # type: ignore[no-untyped-def]
        terms = super().loss(labelled, unlabelled)
        self.diagnostics = {"number": torch.tensor(float(len(self.seen)))}
        return {"number": terms["labelled"] * 0 + len(self.seen)}


def test_the_numbers_of_the_history_are_those_of_its_steps(tmp_path: Path) -> None:
    trainer = trainer_for(tmp_path, Counting)
    rates: list[float] = []
    step = trainer.gradient_step

    def noted(labelled: Any) -> Any:
        rates.append(trainer.optimiser.param_groups[0]["lr"])
        return step(labelled)

    trainer.gradient_step = noted  # type: ignore[method-assign]
    history = outcome_of(trainer).history
    sizes = [one + (other or 0) for one, other in trainer.method.seen]  # type: ignore[union-attr,operator]
    first = 0
    for row in history:
        last = row["steps"]
        assert row["loss_number"] == row["number"] == np.mean(range(first + 1, last + 1))
        assert row["lr"] == rates[last - 1]
        assert row["samples_per_second"] * row["seconds"] == pytest.approx(sum(sizes[first:last]))
        first = last
    assert first == len(sizes)


def test_a_checkpoint_that_is_not_whole_is_as_good_as_none(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors")
    assert checkpoint.read() is None
    checkpoint.write({"a": {"b": torch.ones(3)}}, {"epoch": 2})
    stored = checkpoint.read()
    assert stored is not None
    assert torch.equal(stored.tensors["a"]["b"], torch.ones(3))
    assert stored.facts == {"epoch": 2}
    assert stored.epochs == 2
    checkpoint.file.write_bytes(checkpoint.file.read_bytes()[:-5])
    assert checkpoint.read() is None
    checkpoint.file.write_bytes(b"")
    assert checkpoint.read() is None


def test_prior_is_exact_for_counting(tmp_path: Path) -> None:
    pool = trainer_for(tmp_path).pools.labelled
    assert pool.prior.dtype == torch.float64
    positives = (pool.observed == 1).sum(0)
    assert torch.equal((pool.prior * len(pool)).round().long(), positives)


def test_a_spec_field_reaches_the_optimiser(tmp_path: Path) -> None:
    trainer = trainer_for(tmp_path, weight_decay=0.25, epochs=1, warmup_epochs=0)
    trainer.train()
    assert trainer.optimiser.param_groups[0]["weight_decay"] == 0.25
    assert dataclasses.replace(trainer.spec, weight_decay=0.1).hash != trainer.spec.hash


def test_matrices_decay_by_features_over_the_rows_of_the_phase(tmp_path: Path) -> None:
    trainer = trainer_for(tmp_path, relative_decay=2.0, weight_decay=0.1, head_start="zero")
    width = trainer.model.network.head.in_features
    labelled, unlabelled = len(trainer.pools.labelled), len(trainer.pools.unlabelled)
    trainer.start_phase(0)
    matrices, vectors = trainer.optimiser.param_groups[:2]
    assert matrices["weight_decay"] == pytest.approx(0.1 + 2 * width / labelled)
    assert vectors["weight_decay"] == 0.1
    assert {weight.ndim for weight in vectors["params"]} == {1}
    assert not trainer.model.network.head.weight.any()  # the head starts at zero
    trainer.start_phase(trainer.warmup_epochs)
    matrices = trainer.optimiser.param_groups[0]
    assert matrices["weight_decay"] == pytest.approx(0.1 + 2 * width / (labelled + unlabelled))


@pytest.mark.parametrize("view", ["plain", "plain-patches"])
def test_outputs_of_a_pool_are_the_same_in_one_batch_and_in_several(view: str) -> None:
    """Views of patches have several lines for each row."""
    cls = Plugins().methods["d2l_mat"]
    trainer, _ = toy_trainer(cls, toy("image"), spec_for(cls, "semi"))
    inputs, rows = trainer.evaluator.run_data.train, np.arange(23)[::-1].copy()

    def patches(batch_rows: int) -> torch.Tensor:
        trainer.model.batch_rows = batch_rows
        return trainer.evaluator.predict("raw", inputs, rows, view, ("a",), ("patch",))["patch"]

    whole = patches(100)
    assert len(whole) == len(rows) * (4 if view == "plain-patches" else 1)
    for batch_rows in (23, 12, 5, 1):
        assert torch.allclose(patches(batch_rows), whole, atol=1e-6)


def test_features_of_both_pools_are_computed_without_the_head() -> None:
    cls = Plugins().methods["bbam"]
    trainer, _ = toy_trainer(cls, toy("vector"), spec_for(cls, "semi"))
    pools, calls = trainer.pools, []
    trainer.model.network.head.register_forward_hook(lambda *_: calls.append(1))
    joined = pools.features("raw")
    assert not calls
    pools.forget()
    parts = [pool.features("raw") for pool in (pools.labelled, pools.unlabelled)]
    assert calls
    assert torch.equal(joined, torch.cat(parts))


@pytest.mark.parametrize(("kind", "kept"), [("image", True), ("vector", False)])
def test_freed_memory_is_kept_while_an_encoder_trains(
    monkeypatch: pytest.MonkeyPatch, kind: str, kept: bool
) -> None:
    inside: list[bool] = []
    open_now = []

    @contextmanager
    def block() -> Iterator[None]:
        open_now.append(1)
        yield
        open_now.clear()

    def step(*_: object) -> None:
        inside.append(bool(open_now))

    monkeypatch.setattr("ssmlbench.training.trainer.freed_memory_kept", block)
    cls = Plugins().methods["bce"]
    trainer, _ = toy_trainer(cls, toy(kind), spec_for(cls, "semi"))
    trainer.model.network.register_forward_hook(step)
    trainer.train()
    assert set(inside) == {kept}
    assert not open_now
