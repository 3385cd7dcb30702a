"""The options for reading a user's own data: the fields of `DataOptions`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ssmlbench.cli.run_options import parameter
from ssmlbench.core.data_options import DataOptions
from ssmlbench.core.run_options import OWN_DATA


def data_parameters() -> list[inspect.Parameter]:
    """An option for every field of DataOptions."""
    return [_parameter(field) for field in dataclasses.fields(DataOptions)]


def _parameter(field: dataclasses.Field[Any]) -> inspect.Parameter:
    flag = f"--{field.name.replace('_', '-')}"
    declared = typer.Option(
        flag, help=field.metadata["help"], show_default=False, rich_help_panel=OWN_DATA
    )
    kind: Any = type(field.default)
    return parameter(field.name, Annotated[kind | None, declared])


def data_options(typed: Mapping[str, Any]) -> DataOptions:
    """The options of the data from the values of the command line."""
    return DataOptions(**{name: value for name, value in typed.items() if value is not None})
