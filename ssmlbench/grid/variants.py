"""Requests for variants of one method: its declared ablations, or values of its hyper-parameters."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ssmlbench.core.errors import UserError
from ssmlbench.core.hyperparameters import Between, as_typed, parse_config, ranges
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.grid.request import GridRequest

if TYPE_CHECKING:
    from ssmlbench.plugins.loader import Plugins

BASE = "as it is"
"""The name of the method without any change."""
POINTS = 5
"""Values of a hyper-parameter, spread over its declared range."""


@dataclass(frozen=True)
class Variant:
    """One variant of a method, and the request that makes its runs."""

    name: str
    request: GridRequest
    changes: Mapping[str, str]  # hyper-parameter → the text of its value


def ablations(request: GridRequest, plugins: Plugins) -> list[Variant]:
    """The method as it is, and each variant that it declares in `ablations`."""
    name, cls = _one_method(request, plugins, "ablation")
    declared: Mapping[str, Mapping[str, Any]] = getattr(cls, "ablations", {})
    if not declared:
        having = [n for n in plugins.methods if getattr(plugins.methods[n], "ablations", None)]
        raise UserError(
            f"method {name} declares no ablations; {', '.join(having)} do. A method declares them next to "
            "its Config: docs/plugins.md"
        )
    variants = [Variant(BASE, request, {})]
    for variant, values in declared.items():
        changes = {key: as_typed(value) for key, value in values.items() if key != "method"}
        other = str(values.get("method", name))
        variants.append(Variant(variant, _changed(request, other, changes), changes))
    return variants


def values_of(
    request: GridRequest,
    plugins: Plugins,
    parameters: Sequence[str],
    typed: Mapping[str, Sequence[str]],
    together: bool,
) -> list[Variant]:
    """One variant for each value of each parameter, others at their defaults; or all combinations."""
    name, cls = _one_method(request, plugins, "sensitivity")
    known = [field.name for field in dataclasses.fields(cls.Config)]
    lists = {}
    for parameter in parameters:
        if parameter not in known:
            raise UserError(
                f"--param {parameter}: method {name} has no such hyper-parameter."
                f"{did_you_mean(parameter, known)}"
            )
        lists[parameter] = list(typed.get(parameter, ())) or _spread(cls, parameter, name)
    for parameter in typed:
        if parameter not in lists:
            raise UserError(f"--values {parameter}=…: {parameter} is not in --param")
    if together:
        product = itertools.product(*lists.values())
        combinations = [dict(zip(lists, values, strict=True)) for values in product]
    else:
        combinations = [{p: value} for p, values in lists.items() for value in values]
    for changes in combinations:
        parse_config(cls.Config, changes, f"method {name}")  # an error before any run is made
    return [
        Variant(
            ", ".join(f"{key}={value}" for key, value in changes.items()),
            _changed(request, name, changes),
            changes,
        )
        for changes in combinations
    ]


def _spread(cls: Any, parameter: str, name: str) -> list[str]:
    """Values over the declared range, the default among them."""
    search = ranges(cls.Config).get(parameter)
    default = getattr(cls.Config(), parameter)
    if search is None:
        raise UserError(
            f"--param {parameter}: method {name} declares no range of it; give values, e.g. --values "
            f"{parameter}={as_typed(default)},…"
        )
    if not isinstance(search, Between):
        return [as_typed(value) for value in search.values]
    low, high = float(search.low), float(search.high)
    shares = [i / (POINTS - 1) for i in range(POINTS)]
    points = [
        low * (high / low) ** share if search.log else low + share * (high - low)
        for share in shares
    ]
    rounded = [round(p) if search.whole else float(f"{p:.3g}") for p in points]
    return [as_typed(value) for value in sorted({*rounded, default})]


def _one_method(request: GridRequest, plugins: Plugins, analysis: str) -> tuple[str, Any]:
    methods = request.values.get("method", ())
    if len(methods) != 1:
        raise UserError(f"analyse {analysis} takes one method: --method bbam")
    return methods[0], plugins.methods[methods[0]]


def _changed(request: GridRequest, method: str, changes: Mapping[str, str]) -> GridRequest:
    """The request with one method and its hyper-parameters; other settings stay for their methods."""
    own = {f"{method}.{key}": text for key, text in changes.items()}
    known = {
        key: text
        for key, text in request.settings.items()
        if key.rpartition(".")[2] not in changes
        and ("." in key or method in request.values["method"])
    }
    return dataclasses.replace(
        request, values={**request.values, "method": (method,)}, settings={**known, **own}
    )
