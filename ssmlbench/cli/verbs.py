"""The verbs of the command line. A verb's module is imported when the verb is used.

This keeps `ssmlbench --help` fast, and no verb pays for the imports of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

VERBS = {
    "run": ("run:run", "Train one run, or every combination of the lists given."),
    "tune": ("tune:tune", "Search hyper-parameters, judged on held-out labelled rows."),
    "recommend": ("recommend:recommend", "Find what works on your data, and label its rows."),
    "show": ("show:show", "Show one run: its state, metrics, and results for each label."),
    "predict": ("predict:predict", "Label new rows with the model of a finished run."),
    "runs": ("runs:runs_app", "List, delete or re-evaluate runs."),
    "status": ("status:status", "Show how the runs of a results folder are doing."),
    "compare": ("compare:compare", "Print leaderboards of the finished runs."),
    "analyse": ("analyse:analyse_app", "Analyse finished runs: why a method wins."),
    "report": ("report:report", "Write an HTML page of the finished runs."),
    "plot": ("report:plot", "Write the report's figures as files."),
    "methods": ("plugins:methods", "List the methods, or show all about one."),
    "datasets": ("plugins:datasets_command", "List the data sets."),
    "check": ("check:check", "Test a plugin file against the contract."),
    "new": ("plugins:new_app", "Write a plugin file to start from."),
    "data": ("data_show:data_app", "Prepare, show and verify data sets."),
    "doctor": (
        "doctor:doctor",
        "Verify every stored file, repair what is damaged, sweep leftovers.",
    ),
    "cache": ("cache:cache_app", "List or delete cached features of frozen encoders."),
}
"""Verb → its module and name below `ssmlbench.cli`, and its line in `ssmlbench --help`."""


class Verbs(TyperGroup):
    """The group of all verbs."""

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        self.commands = {name: Verb(name, VERBS[name][1]) for name in VERBS}


class Verb(TyperCommand):
    """A verb that is imported when it is used."""

    def __init__(self, name: str, summary: str):
        super().__init__(name, help=escape(summary))

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """The context of the imported command, which then takes over."""
        return load_verb(str(self.name)).make_context(info_name, args, parent, **extra)


def load_verb(name: str) -> TyperCommand | TyperGroup:
    """Import a verb."""
    module, _, attribute = VERBS[name][0].partition(":")
    found = getattr(import_module(f"ssmlbench.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        command: TyperCommand | TyperGroup = typer.main.get_group(found)
    else:
        app = typer.Typer(add_completion=False)
        app.command(name)(found)
        command = typer.main.get_command(app)  # type: ignore[assignment]
    _escape_help([command])
    return command


def _escape_help(commands: Sequence[Any]) -> None:
    """Escape `[text]` in help texts, which Rich would take for markup."""
    for command in commands:
        for item in (command, *command.params):
            if getattr(item, "help", None):
                item.help = escape(item.help)
        _escape_help(list(getattr(command, "commands", {}).values()))
