"""What a grid is asked for, from the command line, a grid file or both, and the specs it means."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import OPTIONS, REGIME_NUMBERS, RunSpec
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.protocol.regimes import REGIMES

if TYPE_CHECKING:
    from ssmlbench.plugins.loader import Plugins

AXES = {option.key: option.kind for option in OPTIONS.values() if option.axis}
"""What may be a list, under its name on the command line."""

FIXED = {option.key: option.kind for option in OPTIONS.values() if not option.axis}
"""What is the same for all runs of a grid, under its name on the command line."""

CHOICES = {option.key: option.choices for option in OPTIONS.values() if option.choices} | {
    "regime": tuple(REGIMES)
}


@dataclass(frozen=True)
class GridRequest:
    """The axes of a grid, and what is the same for all its runs."""

    axes: Mapping[str, tuple[Any, ...]]  # by the names of AXES
    settings: Mapping[str, str] = field(default_factory=dict)  # the --set texts
    fixed: Mapping[str, Any] = field(default_factory=dict)  # by the names of RunSpec
    exclude: tuple[Mapping[str, tuple[Any, ...]], ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> GridRequest:
        """values: by their names on the command line; axes are tuples, what is not asked is absent.

        `seeds` is a number of seeds, `set` the settings, `exclude` the runs that are left out.
        """
        for name, allowed in CHOICES.items():
            chosen = values.get(name, ())
            for value in chosen if isinstance(chosen, tuple) else (chosen,):
                if value not in allowed:
                    raise UserError(
                        f"--{name} {value}: no such choice.{did_you_mean(value, allowed)}"
                    )
        for name, example in (("method", "bbam"), ("dataset", "multidigits")):
            if not values.get(name):
                raise UserError(f"--{name} is missing, e.g. --{name} {example}")
        axes = {name: values[name] for name in AXES if name in values}
        axes.setdefault("regime", ("semi",))
        for regime, number in REGIME_NUMBERS.items():
            if regime in axes["regime"] and not axes.get(number.key):
                raise UserError(f"{number.flag} is missing, e.g. {number.flag} {number.example}")
        axes.setdefault("seed", _seeds(values.get("seeds", 1)))
        fixed = {
            "epoch_count" if name == "epoch" else name.replace("-", "_"): values[name]
            for name in FIXED
            if name in values
        }
        return cls(axes, values.get("set", {}), fixed, values.get("exclude", ()))


def _seeds(count: int) -> tuple[int, ...]:
    if count < 1:
        raise UserError(f"--seeds {count}: must be at least 1; --seed {count} names a single seed")
    return tuple(range(count))


def merged(file: Mapping[str, Any], typed: Mapping[str, Any]) -> dict[str, Any]:
    """What the grid file says, with what was typed in its place."""
    kept = dict(file)
    if {"seed", "seeds"} & set(typed):
        kept = {name: value for name, value in kept.items() if name not in ("seed", "seeds")}
    over = typed.get("set", {})
    # A setting typed for all methods is meant for those too that the file sets one by one.
    settings = {
        key: text
        for key, text in file.get("set", {}).items()
        if key not in over and key.rpartition(".")[2] not in over
    }
    return {
        **kept,
        **typed,
        "set": {**settings, **over},
        "plugin": (*file.get("plugin", ()), *typed.get("plugin", ())),
    }


def expand(plugins: Plugins, asked: GridRequest) -> list[RunSpec]:
    """Every combination of the axes as a full spec, in the order typed, each once."""
    from ssmlbench.runs.resolve import resolve

    asked = _by_name(plugins, asked)
    specs = [
        resolve(plugins, asked.settings, **asked.fixed, **cell)
        for cell in _cells(asked.axes)
        if not any(_matches(cell, table) for table in asked.exclude)
    ]
    if not specs:
        raise UserError("every run is excluded; nothing is left of the grid")
    return list({spec.hash: spec for spec in specs}.values())


def _by_name(plugins: Plugins, asked: GridRequest) -> GridRequest:
    """Data sets typed as paths under their names; a name that does not exist is told at once."""

    def known(axes: Mapping[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
        named = dict(axes)
        for method in axes.get("method", ()):
            _ = plugins.methods[method]
        if "dataset" in axes:
            named["dataset"] = tuple(plugins.data_set(typed) for typed in axes["dataset"])
            for name in named["dataset"]:
                _ = plugins.datasets[name]
        return named

    exclude = tuple(known(table) for table in asked.exclude)
    return GridRequest(known(asked.axes), asked.settings, asked.fixed, exclude)


def _cells(axes: Mapping[str, tuple[Any, ...]]) -> Iterable[dict[str, Any]]:
    for regime in axes["regime"]:
        numbers = {
            number.name: axes[number.name] if number.regime == regime else (None,)
            for number in REGIME_NUMBERS.values()
        }
        names = ("dataset", *numbers, "method", "seed")
        for values in itertools.product(
            axes["dataset"], *numbers.values(), axes["method"], axes["seed"]
        ):
            yield {"regime": regime, **dict(zip(names, values, strict=True))}


def _matches(cell: Mapping[str, Any], table: Mapping[str, tuple[Any, ...]]) -> bool:
    return all(cell[name] in values for name, values in table.items())
