"""The recipes: defaults of training that fit together. One table, one entry for each.

A recipe fills in fields of the run spec that were not typed; it is not read after that. How the
recipe for fixed features was found, and on which rows, is in docs/recipe.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ssmlbench.core.errors import UserError
from ssmlbench.core.hyperparameters import Between, Choice, Search
from ssmlbench.core.spec import FIELDS, RunSpec
from ssmlbench.core.suggestions import one_of
from ssmlbench.kit.method import Method
from ssmlbench.protocol.regimes import REGIMES

FEATURES_LR = 2e-3
"""The learning rate of heads on fixed features."""
PAPER_FEATURES_LR = 1e-3
"""The same before the recipe for fixed features."""
LEAST_EPOCH_STEPS, MOST_EPOCH_STEPS = 25, 150
"""Of an epoch on fixed features: 1,000 to 6,000 in the 40 epochs of a run."""


@dataclass(frozen=True)
class Request:
    """What a recipe's defaults depend on."""

    method: type[Method]
    fixed_features: bool  # vectors, or --freeze
    frozen: bool  # --freeze
    encoder_lr: float  # of the encoder, if it is trained


@dataclass(frozen=True)
class Recipe:
    """Defaults of training.

    defaults     request → fields of the run spec
    searched     spec of a run → the fields that `tune` draws, around the run's own values
    epoch_steps  labelled rows → gradient steps of an epoch; None: passes over rows are counted
    """

    name: str
    text: str
    defaults: Callable[[Request], dict[str, Any]]
    searched: Callable[[RunSpec], dict[str, Search]]
    epoch_steps: Callable[[int], int] | None = None
    for_fixed_features: bool = False  # refused where an encoder is trained


def _paper(request: Request) -> dict[str, Any]:
    projection = "mlp" if request.fixed_features else request.method.projection
    return {
        "projection": projection,
        "lr": PAPER_FEATURES_LR if request.frozen else request.encoder_lr,
    }


def _features(request: Request) -> dict[str, Any]:
    cosine = request.method.head == "cosine"
    return {
        "projection": "residual" if cosine else "skip",
        "relative_decay": 1.5,
        "weight_decay": 0.0,
        "head_start": "zero",
        "input_dropout": 0.5,
        "hidden_dropout": 0.5,
        "lr": FEATURES_LR,
    }


def epoch_steps(labelled: int) -> int:
    """1.5 √N_l gradient steps an epoch, within bounds: 60 √N_l in the 40 epochs of a run."""
    steps = math.ceil(1.5 * math.sqrt(labelled))
    return min(max(steps, LEAST_EPOCH_STEPS), MOST_EPOCH_STEPS)


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
    """What is drawn for the learning rate of every method: a tenth to three times the default."""
    low, high = (float(f"{default * factor:.4g}") for factor in (0.1, 3))
    return Between(low, high, log=True)


_ENTRIES = (
    Recipe("paper", "as the papers train", _paper, _search_paper),
    Recipe(
        "features",
        "heads on fixed features: few labelled rows, strong regularisation, a budget in steps",
        _features,
        _search_features,
        epoch_steps,
        for_fixed_features=True,
    ),
)
RECIPES: Mapping[str, Recipe] = {recipe.name: recipe for recipe in _ENTRIES}
"""Every recipe by its name."""


def with_recipe(typed: Mapping[str, Any], request: Request) -> dict[str, Any]:
    """What was typed, and the recipe's defaults for what was not."""
    name = typed.get("recipe") or ("features" if request.fixed_features else "paper")
    one_of(name, tuple(RECIPES), FIELDS["recipe"].flag)
    recipe = RECIPES[name]
    if recipe.for_fixed_features and not request.fixed_features:
        raise UserError(
            f"--recipe {name} is for fixed features: add --freeze, or take a data set of vectors"
        )
    if recipe.epoch_steps and typed.get("epoch_count") == "labelled":
        raise UserError(
            f"--epoch labelled counts rows, and --recipe {name} counts steps; add --recipe paper"
        )
    return {**recipe.defaults(request), **typed, "recipe": name}


def with_epoch_steps(spec: RunSpec, rows: int) -> RunSpec:
    """The spec with its recipe's gradient steps of an epoch.

    rows: of the training split, without those whose labels nobody knows.
    """
    recipe = RECIPES[spec.recipe]
    if spec.epoch_steps or recipe.epoch_steps is None:
        return spec
    labelled = REGIMES[spec.regime].labelled_count(rows, spec.regime_number)
    return dataclasses.replace(spec, epoch_steps=recipe.epoch_steps(labelled))
