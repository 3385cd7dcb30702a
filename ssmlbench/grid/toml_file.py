"""The grid file: a small TOML with the axes and settings of the command line under the same names.

methods = ["bce", "cap"]        [set.cap]            # of one method; [set]: of all
datasets = ["multidigits"]      positive_share = 0.9
pi = [0.05, 0.1]
seeds = 3                       [[exclude]]          # a run that fits all its keys is left out
epochs = 20                     method = "bce"
                                pi = 0.1
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ssmlbench.core.errors import UserError
from ssmlbench.core.hyperparameters import as_typed
from ssmlbench.core.paths import from_home
from ssmlbench.core.run_options import RunOption
from ssmlbench.core.spec import OPTIONS
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.core.toml_text import read_toml
from ssmlbench.grid.engines import engines
from ssmlbench.grid.request import GridRequest, first_seeds

PLURALS = {"methods": "method", "datasets": "dataset", "regimes": "regime"}
WHERE_KEYS = (
    "results", "jobs", "threads", "workers", "device", "decoded-cache", "keep-model", "engine",
    "data-dir", "skip-bad", "quiet", "dry-run", "grid", "time-limit", "log", "micro-batch",
    "checkpoint-activations", "gpus", "keep-features",
)  # fmt: skip
"""Options of `run` that say where and how runs are made (without the engines' own): no keys of a grid."""

BY_KEY = {option.key: option for option in OPTIONS.values()}
AXES = {key: option for key, option in BY_KEY.items() if option.axis}
OTHER_KEYS = ("seeds", "set", "exclude", "plugin")

TYPE_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def read_grid(file: Path) -> GridRequest:
    """The request in a grid file."""
    tables = read_toml(file, f"--grid {file}")
    found: dict[str, Any] = {}
    for written, value in tables.items():
        key = PLURALS.get(written, written.replace("_", "-"))
        where = f"{file}: {written}"
        if key in found:
            raise UserError(f"{where} is given twice, as {written} and {key}; keep one")
        found[key] = _value(key, value, where)
    if {"seed", "seeds"} <= set(found):
        raise UserError(f"{file}: seed and seeds are both given; keep one")
    if "seeds" in found:
        found["seed"] = first_seeds(found.pop("seeds"))
    values = {BY_KEY[key].name: value for key, value in found.items() if key in BY_KEY}
    return _from_its_folder(
        GridRequest(
            values, found.get("set", {}), found.get("exclude", ()), found.get("plugin", ())
        ),
        file.parent,
    )


def _value(key: str, value: Any, where: str) -> Any:
    if key == "set":
        return _settings(value, where)
    if key == "exclude":
        return _exclude(value, where)
    if key == "seeds":
        return _one(value, int, where, "seeds = 3")
    if key == "plugin":
        return _several(value, str, where, 'plugin = ["my_method.py"]')
    if key in BY_KEY:
        return _option(value, BY_KEY[key], where)
    if key in where_keys():
        raise UserError(f"{where} says where or how runs are made; type --{key} instead")
    known = [*BY_KEY, *PLURALS, *OTHER_KEYS]
    raise UserError(f"{where}: no such key.{did_you_mean(key, known)}")


def where_keys() -> set[str]:
    """The options of `run` that say where and how runs are made."""
    known = engines()
    return {*WHERE_KEYS, *(option.name for name in known for option in known[name].options)}


def _option(value: Any, option: RunOption, where: str) -> Any:
    if not option.axis:
        return _one(value, option.kind, where)
    return _several(value, option.kind, where, f"{option.key} = [{_shown(option.example)}]")


def _one(value: Any, kind: type, where: str, example: str = "") -> Any:
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:  # a bool is not a number here
        hint = f", e.g. {example}" if example else ""
        raise UserError(f"{where} = {_shown(value)}: must be {TYPE_NAMES[kind]}{hint}")
    return value


def _several(value: Any, kind: type, where: str, example: str) -> tuple[Any, ...]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise UserError(f"{where} is empty, e.g. {example}")
    return tuple(_one(one, kind, where, example) for one in values)


def _settings(table: Any, where: str) -> dict[str, str]:
    """`[set]` and `[set.METHOD]` as --set texts, those of one method last: they win."""
    if not isinstance(table, Mapping):
        raise UserError(f'{where}: must be a table, e.g. [set] and below it loss = "bce"')
    of_all, of_one = {}, {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            for name, inner in value.items():
                of_one[f"{key}.{name}"] = _text(inner, f"{where}.{key}.{name}")
        else:
            of_all[key] = _text(value, f"{where}.{key}")
    return of_all | of_one


def _text(value: Any, where: str) -> str:
    if isinstance(value, str | int | float):
        return as_typed(value)
    raise UserError(f"{where} = {_shown(value)}: must be a text, a number, true or false")


def _exclude(tables: Any, where: str) -> tuple[dict[str, tuple[Any, ...]], ...]:
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        raise UserError(f'{where}: must be tables, e.g. [[exclude]] and below it method = "cap"')
    parsed = []
    for number, table in enumerate(tables, start=1):
        if not table:
            raise UserError(f"{where} {number} is empty and would leave every run out; remove it")
        for key in table:
            if key not in AXES:
                raise UserError(f"{where} {number}: no such key {key!r}.{did_you_mean(key, AXES)}")
        parsed.append(
            {
                AXES[key].name: _option(value, AXES[key], f"{where} {number}: {key}")
                for key, value in table.items()
            }
        )
    return tuple(parsed)


def _from_its_folder(request: GridRequest, folder: Path) -> GridRequest:
    """Plugin files, and data sets given as paths, are relative to the grid file."""
    from ssmlbench.data.user_data import looks_like_path

    def path(text: str) -> str:
        return str(folder / from_home(text))

    def data(table: Mapping[str, Any]) -> Mapping[str, Any]:
        typed = table.get("dataset", ())
        named = tuple(path(t) if looks_like_path(t) else t for t in typed)
        return {**table, "dataset": named} if typed else table

    return GridRequest(
        data(request.values),
        request.settings,
        tuple(map(data, request.exclude)),
        tuple(map(path, request.plugins)),
    )


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
