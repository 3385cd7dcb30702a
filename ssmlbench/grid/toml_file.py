"""The grid file: a small TOML with the axes and settings of the command line under the same names.

methods = ["bce", "cap"]        [set.cap]            # of one method; [set]: of all
datasets = ["multidigits"]      positive_share = 0.9
pi = [0.05, 0.1]
seeds = 3                       [[exclude]]          # a run that fits all its keys is left out
epochs = 20                     method = "bce"
                                pi = 0.1
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ssmlbench.core.errors import UserError
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.grid.request import AXES, FIXED

PLURALS = {"methods": "method", "datasets": "dataset", "regimes": "regime"}
PLACE = (
    "results", "jobs", "threads", "workers", "device", "engine", "address", "slurm", "data-dir",
    "skip-bad", "quiet", "dry-run", "grid",
)  # fmt: skip
"""Options of `run` that say where and how, not what: they are no part of a grid."""

KINDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
EXAMPLES = {
    "method": '["bce", "cap"]',
    "dataset": '["multidigits"]',
    "regime": '["semi", "full"]',
    "pi": "[0.05, 0.1]",
    "share": "[0.5]",
    "seed": "[0, 1, 2]",
    "seeds": "3",
    "plugin": '["my_method.py"]',
}


def read_grid(file: Path) -> dict[str, Any]:
    """The file's values as GridRequest.of takes them, under their names on the command line."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"--grid {file}: cannot be read ({getattr(error, 'strerror', None) or error})"
        ) from None
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"--grid {file}: not TOML: {error}") from None
    values: dict[str, Any] = {}
    for key, value in tables.items():
        name = PLURALS.get(key, key.replace("_", "-"))
        where = f"{file}: {key}"
        if name in values:
            raise UserError(f"{where} is there twice, as {key} and {name}; keep one")
        values[name] = _value(name, value, where)
    if {"seed", "seeds"} <= set(values):
        raise UserError(f"{file}: seed and seeds are both there; keep one")
    return _from_its_folder(values, file.parent)


def _value(name: str, value: Any, where: str) -> Any:
    if name == "set":
        return _settings(value, where)
    if name == "exclude":
        return _exclude(value, where)
    if name == "seeds":
        return _one(value, int, where, name)
    if name == "plugin":
        return _several(value, str, where, name)
    if name in AXES:
        return _several(value, AXES[name], where, name)
    if name in FIXED:
        return _one(value, FIXED[name], where, name)
    if name in PLACE:
        raise UserError(f"{where} says where or how runs are made; type --{name} instead")
    known = [*AXES, *PLURALS, *FIXED, "seeds", "set", "exclude", "plugin"]
    raise UserError(f"{where}: no such key.{did_you_mean(name, known)}")


def _one(value: Any, kind: type, where: str, name: str) -> Any:
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:  # a bool is no number here
        example = f", e.g. {name} = {EXAMPLES[name]}" if name in EXAMPLES else ""
        raise UserError(f"{where} = {_shown(value)}: must be {KINDS[kind]}{example}")
    return value


def _several(value: Any, kind: type, where: str, name: str) -> tuple[Any, ...]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise UserError(f"{where} is empty, e.g. {name} = {EXAMPLES[name]}")
    return tuple(_one(one, kind, where, name) for one in values)


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
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise UserError(f"{where} = {_shown(value)}: must be a text, a number, true or false")


def _exclude(tables: Any, where: str) -> tuple[dict[str, tuple[Any, ...]], ...]:
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        raise UserError(f'{where}: must be tables, e.g. [[exclude]] and below it method = "cap"')
    found = []
    for number, table in enumerate(tables, start=1):
        if not table:
            raise UserError(
                f"{where} {number} is empty and would leave every run out; take it away"
            )
        for key in table:
            if key not in AXES:
                raise UserError(f"{where} {number}: no such key {key!r}.{did_you_mean(key, AXES)}")
        found.append(
            {k: _several(v, AXES[k], f"{where} {number}: {k}", k) for k, v in table.items()}
        )
    return tuple(found)


def _from_its_folder(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Plugin files, and data sets given as paths, are meant as seen from the grid file."""
    from ssmlbench.data.user_data import looks_like_path

    def path(text: str) -> str:
        return str(folder / Path(text).expanduser())

    def data(table: dict[str, Any]) -> dict[str, Any]:
        typed = table.get("dataset", ())
        named = tuple(path(t) if looks_like_path(t) else t for t in typed)
        return {**table, "dataset": named} if typed else table

    values = data(values)
    if "plugin" in values:
        values["plugin"] = tuple(map(path, values["plugin"]))
    if "exclude" in values:
        values["exclude"] = tuple(map(data, values["exclude"]))
    return values


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
