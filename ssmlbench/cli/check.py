"""`ssmlbench check`: the conformance suite on a plugin, one line for each statement and mistake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ssmlbench.core.console import Console
from ssmlbench.core.paths import from_home
from ssmlbench.core.registry import location

if TYPE_CHECKING:
    from ssmlbench.checks.statements import CheckResult, Statement
    from ssmlbench.plugins.loader import Plugins


def check(
    target: Annotated[
        str,
        typer.Argument(
            help="A plugin file, or the name of a method, estimator, encoder or data set."
        ),
    ],
) -> None:
    """Run the conformance suite on a plugin, on the CPU, within a minute."""
    if not check_plugins(target, Console()):
        raise typer.Exit(2)


def check_plugins(target: str, console: Console) -> bool:
    """Check the plugins of a file, or one by name; True if all checks pass."""
    from ssmlbench.plugins.loader import Plugins, load_file

    if target.endswith(".py") or "/" in target or Path(target).is_file():
        plugins = Plugins([target])
        module = load_file(from_home(target))
        classes = [cls for cls in _all(plugins) if cls.__module__ == module.__name__]
    else:
        plugins = Plugins()
        classes = [_named(target, plugins)]
    holds = [_check_one(cls, console) for cls in classes]
    return all(holds)


def _all(plugins: Plugins) -> Iterator[type[Any]]:
    for registry in (plugins.methods, plugins.encoders, plugins.datasets):
        for name in registry:
            yield registry[name]


def _named(name: str, plugins: Plugins) -> type[Any]:
    if name in plugins.encoders:
        return plugins.encoders[name]
    return plugins.datasets[name] if name in plugins.datasets else plugins.methods[name]


def suite(cls: type[Any]) -> tuple[Iterable[Statement], Iterable[str]]:
    """The statements about a plugin, and the warnings to show if all of them hold."""
    from ssmlbench.checks.datasets import dataset_statements
    from ssmlbench.checks.encoders import encoder_statements
    from ssmlbench.checks.estimators import estimator_statements
    from ssmlbench.checks.methods import method_statements
    from ssmlbench.checks.sealed import sealed_statements
    from ssmlbench.checks.warnings import method_warnings, unread_hyperparameters
    from ssmlbench.data import DatasetAdapter
    from ssmlbench.inputs.encoders import Encoder
    from ssmlbench.kit.estimator import Estimator

    if issubclass(cls, DatasetAdapter):
        return dataset_statements(cls), ()
    if issubclass(cls, Encoder):
        return encoder_statements(cls), ()
    if issubclass(cls, Estimator):
        statements = chain(estimator_statements(cls), sealed_statements(cls))
        return statements, unread_hyperparameters(cls)
    return chain(method_statements(cls), sealed_statements(cls)), method_warnings(cls)


def _check_one(cls: type[Any], console: Console) -> bool:
    """Run a plugin's checks and print each; True if all hold."""
    from ssmlbench.checks.statements import results_of

    statements, warnings = suite(cls)
    _print_styled(console, cls.name, "bold", f"  {location(cls)}")
    hidden: list[CheckResult] = []
    broken: list[str] = []
    for result in results_of(cls, statements):
        if result.outcome == "not checked":
            hidden.append(result)
            continue
        colour, word = ("green", "ok") if result.outcome == "ok" else ("red", "BROKEN")
        case = f" ({result.statement.case})" if result.statement.case else ""
        _print_styled(console, f"  {word:8}", colour, f"{result.statement.text}{case}")
        if result.reason:
            broken.append(result.statement.text)
            console.print_line(f"          {result.reason}")
    if hidden:
        console.print("  not checked because of it:")
        texts = dict.fromkeys(result.statement.text for result in hidden)
        for text in [text for text in texts if text not in broken] or texts:
            console.print_line(f"          {text}")
    if not broken:
        for warning in warnings:
            _print_styled(console, "  warning", "yellow", f" {warning}")
    ending = f"{len(broken)} broken, {len(hidden)} not checked" if broken else "all checks passed"
    console.print(f"{cls.name}: {ending}", highlight=False)
    return not broken


def _print_styled(console: Console, first: str, style: str, rest: str) -> None:
    """Print a line whose first words have a style."""
    console.print(Text.assemble((first, style), rest), soft_wrap=True)
