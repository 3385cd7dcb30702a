"""The recipes: defaults of training that fit together. One table, one entry for each.

A recipe fills in the fields of the run spec that the user left out. docs/recipe.md says how the recipe for
fixed features was found, and on which rows; its number of steps is in training/batching.py.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ssmlbench.core.errors import UserError
from ssmlbench.core.hyperparameters import Between, Choice, Search
from ssmlbench.core.spec import FIELDS, RunSpec

FEATURES_LR = 2e-3
"""The learning rate of heads on fixed features."""
PAPER_FEATURES_LR = 1e-3
"""The same before the recipe for fixed features."""
MANY_LABELLED_ROWS = 2_000
"""With more labelled rows than this, half the input dropout is best."""
MANY_ZEROS = 0.5
"""Vectors with a larger share of zeros are sparse: counts of words, for example."""


@dataclass(frozen=True)
class Request:
    """The facts of a request that a recipe's defaults depend on."""

    projection: str  # of the method
    head: str  # of the method with its configuration
    fixed_features: bool  # vectors, or --freeze
    frozen: bool  # --freeze
    images: bool
    encoder_lr: float  # of the encoder, if it is trained


@dataclass(frozen=True)
class DataTraits:
    """The traits of a prepared data set that a recipe's defaults depend on."""

    labelled: int  # rows
    zeros: float  # the share of zeros in vectors; 0 for other inputs


@dataclass(frozen=True)
class Recipe:
    """Defaults of training.

    defaults  request → fields of the run spec
    searched  spec of a run → the fields that `tune` draws, around the run's own values
    for_data  traits of the data → fields to change
    """

    name: str
    text: str
    defaults: Callable[[Request], dict[str, Any]]
    searched: Callable[[RunSpec], dict[str, Search]]
    for_fixed_features: bool = False  # refused where an encoder is trained
    for_data: Callable[[DataTraits], dict[str, Any]] = lambda traits: {}


def _paper(request: Request) -> dict[str, Any]:
    projection = "mlp" if request.fixed_features else request.projection
    return {
        "projection": projection,
        "lr": PAPER_FEATURES_LR if request.frozen else request.encoder_lr,
    }


def _features(request: Request) -> dict[str, Any]:
    return {
        "projection": "residual" if request.head == "cosine" else "skip",
        "relative_decay": 1.5,
        "weight_decay": 0.0,
        "head_start": "zero",
        "input_dropout": 0.5,
        "hidden_dropout": 0.5,
        "lr": FEATURES_LR,
        # Features of strong views of images are far from those of plain images, which are scored.
        "mixed_draws": request.frozen and request.images,
    }


def _features_for_data(traits: DataTraits) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if traits.labelled > MANY_LABELLED_ROWS:
        fields["dropout_factor"] = 0.5
    if traits.zeros > MANY_ZEROS:
        # One word may decide a label, and most steps would drop it.
        fields["rotate_columns"] = True
    return fields


def _search_paper(spec: RunSpec) -> dict[str, Search]:
    return {"lr": learning_rates(spec.lr), "weight_decay": Between(1e-5, 1e-2, log=True)}


def _search_features(spec: RunSpec) -> dict[str, Search]:
    return {
        "lr": learning_rates(spec.lr),
        "relative_decay": Between(0.15, 5.0, log=True),
        "input_dropout": Between(0.0, 0.8),
        "hidden_dropout": Between(0.0, 0.8),
        "projection": Choice((spec.projection, "none")),
    }


def learning_rates(default: float) -> Between:
    """The range that `tune` draws learning rates from: a tenth to three times the default."""
    low, high = (float(f"{default * factor:.4g}") for factor in (0.1, 3))
    return Between(low, high, log=True)


_ENTRIES = (
    Recipe("paper", "as the papers train", _paper, _search_paper),
    Recipe(
        "features",
        "heads on fixed features: few labelled rows, strong regularisation, a budget in steps",
        _features,
        _search_features,
        for_fixed_features=True,
        for_data=_features_for_data,
    ),
)
RECIPES: Mapping[str, Recipe] = {recipe.name: recipe for recipe in _ENTRIES}
"""Every recipe by its name."""


def with_recipe(typed: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """The user's values, and the recipe's defaults for the other fields."""
    name = typed.get("recipe") or ("features" if request.fixed_features else "paper")
    FIELDS["recipe"].check(name)
    recipe = RECIPES[name]
    if recipe.for_fixed_features and not request.fixed_features:
        raise UserError(
            f"--recipe {name} is for fixed features: add --freeze, or take a data set of vectors"
        )
    return {**recipe.defaults(request), **typed, "recipe": name}


def fitted_to_data(spec: RunSpec, traits: DataTraits, typed: Container[str]) -> RunSpec:
    """The spec, changed as its recipe asks for such data. typed: the user's fields."""
    option = {"dropout_factor": "input_dropout"}  # of a field that has none itself
    fields = RECIPES[spec.recipe].for_data(traits)
    return replace(spec, **{k: v for k, v in fields.items() if option.get(k, k) not in typed})
