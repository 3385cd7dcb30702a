"""Checks the Config of a method or estimator when it is loaded: a frozen dataclass of plain values."""

from __future__ import annotations

import dataclasses
import inspect
import math
import typing
from typing import Any, Literal

from ssmlbench.core import hyperparameters
from ssmlbench.core.errors import UserError
from ssmlbench.plugins.contract_names import wrong
from ssmlbench.plugins.source_lines import own_classes

PLAIN = (int, float, bool, str)
EXPECTED = "int, float, bool, str or Literal[…], or one of them | None"


def check_config(cls: type[Any]) -> None:
    """Raise a UserError unless Config is a frozen dataclass of fields that `--set` can set."""
    if not hasattr(cls, "Config"):
        return  # a data set or an encoder
    config = cls.Config
    for base in own_classes(cls):
        if "Config" in vars(base):
            _check_dataclass(cls, vars(base)["Config"])
            break
    try:
        kinds = typing.get_type_hints(config)
    except NameError as error:
        raise _wrong(
            cls, "", f"{error.name} is not imported, and a type of Config names it"
        ) from None
    for field in dataclasses.fields(config):
        _check_field(cls, field, kinds[field.name])
    for fault in hyperparameters.faults(config):
        raise _wrong(cls, fault.partition(":")[0], f"hyper-parameter {fault}")


def _wrong(cls: type[Any], field: str, text: str) -> UserError:
    return wrong(cls, f"Config.{field}" if field else "Config", text)


def _check_dataclass(cls: type[Any], config: Any) -> None:
    decorate = "write @dataclass(frozen=True) above it"
    if not inspect.isclass(config):
        raise _wrong(cls, "", f"Config is {config!r}; expected a class, and {decorate}")
    if "__dataclass_params__" not in vars(config) and (
        vars(config).get("__annotations__")
        or not dataclasses.is_dataclass(config)
        or _has_values(config)
    ):
        raise _wrong(cls, "", f"Config is no dataclass, so its fields are not read: {decorate}")
    dataclass: Any = config
    if not dataclass.__dataclass_params__.frozen:
        raise _wrong(cls, "", f"Config can be changed after the run is recorded: {decorate}")
    values = {n: v for n, v in vars(config).items() if isinstance(v, PLAIN) and n[0] != "_"}
    for name in sorted(set(values) - set(dataclass.__dataclass_fields__)):
        typed = f"{name}: {type(values[name]).__name__} = {values[name]!r}"
        raise _wrong(
            cls, name, f"Config.{name} has no type, so it is no hyper-parameter: write {typed}"
        )


def _has_values(config: type[Any]) -> bool:
    return any(not name.startswith("_") for name in vars(config))


def _check_field(cls: type[Any], field: dataclasses.Field[Any], kind: Any) -> None:
    name, default = field.name, field.default
    if default is dataclasses.MISSING:
        raise _wrong(cls, name, f'hyper-parameter {name} has no default: option(default, "…")')
    alternatives = hyperparameters.alternatives(kind)
    if not all(k in (*PLAIN, type(None)) or typing.get_origin(k) is Literal for k in alternatives):
        raise _wrong(cls, name, f"hyper-parameter {name}: its type must be {EXPECTED}")
    if not any(_fits(default, alternative) for alternative in alternatives):
        shown = " | ".join(
            getattr(k, "__name__", str(k)).removeprefix("typing.") for k in alternatives
        )
        raise _wrong(cls, name, f"hyper-parameter {name}: its default {default!r} is no {shown}")
    # NaN equals nothing, not even itself: every run would count as changed
    if isinstance(default, float) and math.isnan(default):
        raise _wrong(cls, name, f"hyper-parameter {name}: its default is NaN; expected a number")
    if not isinstance(meaning := field.metadata.get("meaning", ""), str):
        raise _wrong(
            cls, name, f"hyper-parameter {name}: its meaning is {meaning!r}; expected a text"
        )


def _fits(value: Any, kind: Any) -> bool:
    if typing.get_origin(kind) is Literal:
        return value in typing.get_args(kind)
    if kind is float:
        return type(value) in (int, float)
    return type(value) is kind
