"""The output of `ssmlbench methods` and `ssmlbench datasets`; plugins/catalogue.py has the content."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ssmlbench.core.markdown_text import markdown_cell, markdown_code, markdown_text
from ssmlbench.core.paths import near
from ssmlbench.plugins.catalogue import Catalogue, DatasetInfo, MethodInfo

HEADINGS = {"title": "what", "uses": "learns from"}


COMPACT = {"method": ("name", "uses", "title"), "data set": ("name", "kind", "title")}
"""The columns of a list that fits 80 characters, by kind of plugin."""


def compact(catalogue: Catalogue[MethodInfo] | Catalogue[DatasetInfo], width: int) -> str:
    """One line for each plugin, cut to the width of the terminal."""
    names = COMPACT[catalogue.kind]
    head = {"name": catalogue.kind, **HEADINGS}
    rows = [[head.get(name, name) for name in names]]
    rows += [[row[name] for name in names] for row in catalogue.rows()]
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    lines = [f"{row[0]:{first}}  {row[1]:{second}}  {row[2]}" for row in rows]
    return "\n".join(f"{line[: width - 1]}…" if len(line) > width else line for line in lines)


def overview(catalogue: Catalogue[MethodInfo] | Catalogue[DatasetInfo]) -> RenderableType:
    """Everything about each plugin, below its name: a table would have too many columns."""
    parts: list[RenderableType] = []
    for row in catalogue.rows():
        facts = {
            HEADINGS.get(name, name): _near(text) if name == "file" else text
            for name, text in row.items()
            if name != "name"
        }
        parts += [Text(row["name"], style="bold"), _facts(facts), ""]
    return Group(*parts)


def _facts(values: Mapping[str, str]) -> Table:
    """Names and values in two columns; empty values are left out."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in values.items():
        if value:
            facts.add_row(Text(name, style="bold"), Text(value))
    return facts


def _near(file: str) -> str:
    return str(near(Path(file)))


def methods_markdown(catalogue: Catalogue[MethodInfo]) -> str:
    """The page of every method, for docs/methods.md."""
    lines = []
    for method in catalogue.values():
        lines += [f"### {method.name}", "", markdown_text(method.title), ""]
        lines += [f"*{markdown_text(method.paper)}.*"]
        head = f" Head: {method.head}." if method.head else ""
        lines += [
            f"{method.kind.title()}, learns from {markdown_text(method.uses)}. "
            f"Regimes: {', '.join(method.regimes)}.{head}",
            "",
        ]
        if method.hyperparameters:
            lines += ["| hyper-parameter | default | tuned over | meaning |"]
            lines += ["| --- | --- | --- | --- |"]
            lines += [
                f"| `{each.name}` | {markdown_code(each.default)} | {markdown_cell(each.search)} | "
                f"{markdown_cell(each.meaning)} |"
                for each in method.hyperparameters
            ]
            lines.append("")
        if method.differences:
            lines += ["Where paper, released code and this file differ:", ""]
            lines += [*(f"- {markdown_text(difference)}" for difference in method.differences), ""]
    return "\n".join(lines)


def method_page(method: MethodInfo) -> RenderableType:
    """Everything about one method."""
    facts = {
        "paper": method.paper,
        "kind": method.kind,
        "learns from": method.uses,
        "regimes": ", ".join(method.regimes),
        "head": method.head,
        "file": _near(str(method.file)),
    }
    parts: list[RenderableType] = [Text(method.name, style="bold"), Text(method.title), ""]
    parts += [_facts(facts), ""]
    named = (
        "hyper-parameters (--set name=value)" if method.hyperparameters else "no hyper-parameters"
    )
    parts += [Text(named, style="bold" if method.hyperparameters else "")]
    for each in method.hyperparameters:
        tuned = f"; tuned over {each.search}" if each.search else ""
        parts += [
            Text.assemble("  ", (f"{each.name}={each.default}", "bold"), f"  {each.kind}{tuned}"),
            Padding(Text(each.meaning), (0, 0, 0, 6)),
        ]
    if method.kind == "method":
        parts.append(
            Text("`ssmlbench tune` also draws the learning rate, as it does for every method")
        )
    if method.differences:
        parts += ["", Text("where paper, released code and this file differ", style="bold")]
        listed = Table.grid(padding=(0, 1))
        for difference in method.differences:
            listed.add_row("  -", Text(difference))
        parts.append(listed)
    return Group(*parts)
