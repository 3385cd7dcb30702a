"""What `ssmlbench methods` and `ssmlbench datasets` show."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ssmlbench.core.hyperparameters import search_of
from ssmlbench.core.paths import near
from ssmlbench.core.registry import location

if TYPE_CHECKING:
    from ssmlbench.kit.method import Method
    from ssmlbench.plugins.loader import Plugins


def idea(cls: type) -> str:
    """The first paragraph of the docstring, on one line."""
    return " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())


def _near(place: Path | str) -> str:
    return place if isinstance(place, str) else str(near(place))


def method_table(plugins: Plugins) -> Table:
    table = Table()
    for column in ("method", "idea", "paper", "regimes", "file"):
        table.add_column(column, overflow="fold")
    for name in plugins.methods:
        cls = plugins.methods[name]
        table.add_row(
            name, idea(cls), cls.paper, ", ".join(sorted(cls.regimes)), _near(location(cls))
        )
    return table


def dataset_table(plugins: Plugins) -> Table:
    table = Table()
    for column in ("data set", "what", "kind", "backbone", "citation", "licence", "file"):
        table.add_column(column, overflow="fold")
    for name in plugins.datasets:
        cls = plugins.datasets[name]
        table.add_row(
            name,
            idea(cls),
            cls.kind,
            cls.backbone,
            cls.citation,
            cls.licence,
            _near(location(cls)),
        )
    return table


def methods_markdown(plugins: Plugins) -> str:
    """Every method's page, as docs/methods.md has it."""
    lines = []
    for name in plugins.methods:
        cls = plugins.methods[name]
        lines += [f"### {name}", "", idea(cls), "", f"*{cls.paper}.*"]
        lines += [f"Regimes: {', '.join(sorted(cls.regimes))}. Head: {_head(cls)}.", ""]
        parameters = [
            f"| `{name}` | `{default}` | {search} | {meaning} |"
            for name, default, _, search, meaning in _options(cls)
        ]
        if parameters:
            lines += ["| hyper-parameter | default | tuned over | meaning |"]
            lines += ["| --- | --- | --- | --- |"]
            lines += [*parameters, ""]
        if cls.differences:
            lines += ["Where paper, released code and this file differ:", ""]
            lines += [*(f"- {difference}" for difference in cls.differences), ""]
    return "\n".join(lines)


def _head(cls: type[Method]) -> str:
    return cls.head + (" on the 512-256 projection" if cls.projection == "mlp" else "")


def _options(cls: type[Method]) -> list[tuple[str, str, str, str, str]]:
    """Name, default, type, search range and meaning of each hyper-parameter."""
    hints = typing.get_type_hints(cls.Config)
    return [
        (
            field.name,
            str(field.default).lower() if isinstance(field.default, bool) else str(field.default),
            _type_name(hints[field.name]),
            str(search_of(field) or ""),
            field.metadata.get("meaning", ""),
        )
        for field in dataclasses.fields(cls.Config)
    ]


def _type_name(kind: object) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return " | ".join(map(str, typing.get_args(kind)))
    return kind.__name__ if isinstance(kind, type) else str(kind)


def method_page(cls: type[Method]) -> RenderableType:
    facts = Table.grid(padding=(0, 2))
    for key, value in (
        ("paper", cls.paper),
        ("regimes", ", ".join(sorted(cls.regimes))),
        ("head", _head(cls)),
        ("file", _near(location(cls))),
    ):
        facts.add_row(Text(key, style="bold"), value)
    parameters = Table(title="hyper-parameters (--set name=value)", title_justify="left")
    for column in ("name", "default", "type", "tuned over", "meaning"):
        parameters.add_column(column, no_wrap=column == "name")  # to be typed as it stands
    options = _options(cls)
    for row in options:
        parameters.add_row(*row)
    parts: list[RenderableType] = [Text(cls.name, style="bold"), Text(idea(cls)), "", facts, ""]
    parts.append(parameters if options else Text("no hyper-parameters"))
    parts.append(Text("`ssmlbench tune` also draws the learning rate, as it does for every method"))
    if cls.differences:
        parts += ["", Text("where paper, released code and this file differ", style="bold")]
        parts += [Text(f"  - {difference}") for difference in cls.differences]
    return Group(*parts)
