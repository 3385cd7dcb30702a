"""Recipes: the defaults they fill in, the budget in steps, and the decay that follows the rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs.encoders import Vector
from ssmlbench.kit.heads import Dropout, build_projection
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs import recipes
from ssmlbench.runs.resolve import resolve
from ssmlbench.training.batching import plan_epoch, steps_an_epoch, steps_for
from ssmlbench.training.model import Model

VECTORS = '''
import numpy as np
from ssmlbench.api import DatasetAdapter, Row

class Vectors(DatasetAdapter):
    """400 training rows of six features."""
    name, kind = "recipe-vectors", "vector"

    def label_names(self):
        return ["a", "b"]

    def rows(self, split):
        random = np.random.default_rng(len(split))
        for i in range(400 if split == "train" else 20):
            yield Row(random.normal(size=6).astype(np.float32), (i % 2,))

class Words(Vectors):
    """The same, with two zeros of three."""
    name = "recipe-words"

    def rows(self, split):
        for row in super().rows(split):
            yield Row(row.input * np.float32([1, 0, 0, 0, 0, 1]), row.labels)
'''

Ask = Callable[..., RunSpec]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Resolve a run on the vectors above."""
    monkeypatch.setenv("SSMLBENCH_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "vectors.py"
    file.write_text(VECTORS)
    plugins = Plugins([file])

    def call(settings: Mapping[str, str] = {}, /, **fields: Any) -> RunSpec:
        wanted = {"method": "bce", "dataset": "recipe-vectors", "pi": 0.25, **fields}
        return resolve(plugins, settings, **wanted)

    return call


def test_vectors_take_the_recipe_for_fixed_features_and_paper_restores_the_papers(ask: Ask) -> None:
    spec = ask()
    assert (spec.recipe, spec.projection, spec.head_start) == ("features", "skip", "zero")
    assert (spec.input_dropout, spec.hidden_dropout, spec.relative_decay) == (0.5, 0.5, 1.5)
    paper = ask(recipe="paper")
    assert (paper.projection, paper.head_start, paper.epoch_steps) == ("mlp", "random", None)
    assert (paper.input_dropout, paper.relative_decay, paper.weight_decay) == (0, 0, 1e-4)
    assert paper.hash != spec.hash


def test_a_trained_encoder_has_the_papers_recipe_and_refuses_the_other(ask: Ask) -> None:
    spec = ask(dataset="multidigits")
    assert (spec.recipe, spec.projection, spec.input_dropout) == ("paper", "none", 0)
    with pytest.raises(UserError, match="--recipe features is for fixed features"):
        ask(dataset="multidigits", recipe="features")


def test_frozen_images_have_clean_views_among_the_draws(ask: Ask) -> None:
    images = {"dataset": "multidigits", "backbone": "hog"}  # always frozen
    assert ask(**images).mixed_draws
    assert not ask(**images, mixed_draws=False).mixed_draws
    assert not ask(**images, recipe="paper").mixed_draws
    assert not ask(**images, method="logistic").mixed_draws
    assert not ask().mixed_draws  # vectors
    with pytest.raises(UserError, match="--mixed-draws is for --freeze"):
        ask(dataset="multidigits", mixed_draws=True)


def test_columns_of_sparse_vectors_are_rotated_for_methods(ask: Ask) -> None:
    words = {"dataset": "recipe-words"}
    assert ask(**words).rotate_columns
    assert ask(**words, input_dropout=0.1).rotate_columns
    assert not ask(**words, rotate_columns=False).rotate_columns
    assert not ask(**words, recipe="paper").rotate_columns
    assert not ask(**words, scaling="none").rotate_columns
    assert not ask(**words, method="forest").rotate_columns  # trees cut single columns
    assert not ask().rotate_columns
    assert ask(rotate_columns=True).rotate_columns
    with pytest.raises(UserError, match="--rotate-columns rotates scaled columns"):
        ask(rotate_columns=True, scaling="none")
    with pytest.raises(UserError, match="--rotate-columns is for feature vectors"):
        ask(dataset="multidigits", rotate_columns=True)


def test_what_was_typed_is_kept(ask: Ask) -> None:
    spec = ask(lr=0.1, input_dropout=0.0, epoch_steps=7)
    assert (spec.lr, spec.input_dropout, spec.epoch_steps) == (0.1, 0.0, 7)
    assert spec.hidden_dropout == 0.5


def test_a_cosine_head_reads_a_sum_and_shares_the_setting(ask: Ask) -> None:
    linear, cosine = ask(), ask(method="bbam")
    assert (linear.projection, cosine.projection) == ("skip", "residual")
    assert linear.relative_decay == cosine.relative_decay


@pytest.mark.parametrize(("head", "projection"), [("linear", "skip"), ("cosine", "residual")])
def test_the_projection_follows_the_head_that_a_hyper_parameter_chooses(
    ask: Ask, head: str, projection: str
) -> None:
    assert ask({"head": head}, method="hml").projection == projection


@pytest.mark.parametrize(
    ("labelled", "steps"), [(1, 25), (278, 26), (1000, 48), (10_000, 150), (10**6, 150)]
)
def test_an_epoch_has_one_and_a_half_roots_of_the_labelled_rows(labelled: int, steps: int) -> None:
    assert steps_for(labelled) == steps


def test_the_budget_follows_the_rows_and_is_one_setting_at_every_level(ask: Ask) -> None:
    few, many = ask(pi=0.25), ask(regime="full", pi=None)
    assert (few.epoch_steps, many.epoch_steps) == (None, None)  # levels of π share a board
    assert steps_an_epoch(few, 100, 300, warming_up=True) == 25
    assert steps_an_epoch(many, 400, 0, warming_up=False) == 30


def test_many_labelled_rows_halve_the_dropout_of_features_in_one_setting(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipes, "MANY_LABELLED_ROWS", 100)
    few, many = ask(pi=0.25), ask(pi=0.2525)
    assert (few.dropout_factor, many.dropout_factor) == (1.0, 0.5)
    assert few.input_dropout == many.input_dropout  # levels of π share a board
    assert ask(regime="full", pi=None).dropout_factor == 0.5
    assert ask(pi=0.2525, recipe="paper").dropout_factor == 1.0
    assert ask(pi=0.2525, input_dropout=0.5).dropout_factor == 1.0
    assert ask(pi=0.2525, method="logistic").dropout_factor == 1.0


@pytest.mark.parametrize(("factor", "dropped"), [(1.0, 0.5), (0.5, 0.25)])
def test_the_network_drops_what_the_spec_says(ask: Ask, factor: float, dropped: float) -> None:
    spec = dataclasses.replace(ask(), dropout_factor=factor)
    method = Plugins([]).methods["bce"]
    encoder = Vector(torch.zeros(6))
    model = Model(spec, method(method.Config(), 2), encoder, torch.device("cpu"))
    assert model.network.dropout.p == dropped


def test_counting_rows_and_counting_steps_exclude_each_other(ask: Ask) -> None:
    with pytest.raises(UserError, match="--epoch labelled counts rows"):
        ask(epoch_count="labelled")
    with pytest.raises(UserError, match="--epoch labelled counts rows"):
        ask(epoch_count="labelled", recipe="paper", epoch_steps=3)
    assert ask(epoch_count="labelled", recipe="paper").epoch_steps is None


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_a_dropout_of_everything_is_refused(ask: Ask, dropout: float) -> None:
    with pytest.raises(UserError, match=r"--input-dropout .*: must lie in \[0, 1\)"):
        ask(input_dropout=dropout)


@pytest.mark.parametrize(("labelled", "unlabelled"), [(5, 12), (200, 12), (5, 3000), (40, 0)])
def test_every_epoch_has_the_stated_steps_with_full_batches(labelled: int, unlabelled: int) -> None:
    spec = RunSpec("cap", "toy", pi=0.1, epoch_steps=9, batch_size=16, labelled_batch_size=8)
    mixed = unlabelled > 0
    steps = steps_an_epoch(spec, labelled, unlabelled, warming_up=False)
    plan = plan_epoch(spec, 3, steps, labelled, unlabelled, mixed)
    assert (steps, len(plan)) == (9, 9)
    assert {len(rows) for rows in plan.labelled} == {8 if mixed else 16}
    seen = torch.cat(plan.labelled).bincount(minlength=labelled)
    assert seen.max() - seen.min() <= 1  # rows are cycled evenly
    if mixed:
        assert plan.unlabelled is not None
        assert {len(rows) for rows in plan.unlabelled} == {16}
        seen = torch.cat(plan.unlabelled).bincount(minlength=unlabelled)
        assert seen.max() - seen.min() <= 1


def test_skip_joins_the_features_and_residual_adds_them() -> None:
    features = torch.randn(4, 6)
    skip, width = build_projection("skip", 6)
    assert width == 6 + 128
    assert torch.equal(skip(features)[:, :6], features)
    residual, width = build_projection("residual", 6)
    assert width == 128
    nonlinear = residual.mlp(features)
    expected = nonlinear + features @ residual.linear.weight.T
    assert torch.allclose(residual(features), expected)


def test_dropout_keeps_the_mean_in_training_and_everything_in_eval() -> None:
    torch.manual_seed(0)
    ones = torch.ones(400, 100)
    dropout = Dropout(0.8)
    dropped = dropout(ones)
    assert set(dropped.unique().tolist()) == {0.0, 5.0}
    assert dropped.mean() == pytest.approx(1.0, abs=0.05)
    assert not torch.equal(dropout(ones), dropped)
    assert torch.equal(dropout.eval()(ones), ones)
    assert torch.equal(ones, torch.ones(400, 100))  # the input is not changed
