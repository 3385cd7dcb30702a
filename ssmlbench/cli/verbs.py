"""The verbs of the command line. A verb's module is imported when the verb is used.

This keeps `ssmlbench --help` fast, and no verb pays for the imports of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from ssmlbench.cli.typed_words import check_words, usable_paths
from ssmlbench.core.errors import UserError

USAGE_ERROR: type[Any] = typer.BadParameter.__bases__[0]
"""What the parser raises, from Click or from Typer's own copy of it: Typer exports one child of it."""

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

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Parse the options of `ssmlbench` itself."""
        with _usage_errors_as_user_errors():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Parse the options of a verb and call it."""
        with _usage_errors_as_user_errors():
            return super().invoke(ctx)


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
    _check_words_of([command])
    return command


def _check_words_of(commands: Sequence[Any]) -> None:
    """Let the commands look at the words typed for them before they parse them."""
    for command in commands:
        if inner := getattr(command, "commands", None):
            _check_words_of(list(inner.values()))
        else:
            command.parse_args = partial(_parse_checked, command, command.parse_args)


def _parse_checked(command: Any, parse: Callable[..., Any], context: Any, words: list[str]) -> Any:
    check_words(command.params, words)
    made = parse(context, words)
    context.params.update({name: usable_paths(value) for name, value in context.params.items()})
    return made


def _escape_help(commands: Sequence[Any]) -> None:
    """Escape `[text]` in help texts, which Rich would take for markup."""
    for command in commands:
        for item in (command, *command.params):
            if getattr(item, "help", None):
                item.help = escape(item.help)
        _escape_help(list(getattr(command, "commands", {}).values()))


@contextmanager
def _usage_errors_as_user_errors() -> Iterator[None]:
    """Give the mistakes that the parser finds the one line of all others, instead of a box."""
    try:
        yield
    except USAGE_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a group without a verb shows its help
            raise
        raise UserError(_plainly(error)) from None


def _expected(found: Mapping[str, Any]) -> str:
    """What Pydantic expected, in the words of this tool's other messages."""
    kind, bounds = found["type"], found.get("ctx", {})
    for start, expected in (
        ("int", "a whole number"),
        ("float", "a number"),
        ("bool", "true or false"),
    ):
        if kind.startswith(f"{start}_"):
            return f"must be {expected}"
    if kind == "greater_than_equal":
        return f"must be at least {bounds['ge']}"
    if kind == "less_than_equal":
        return f"must be at most {bounds['le']}"
    message: str = found["msg"]
    return f"{message[:1].lower()}{message[1:]}"


def _plainly(error: Any) -> str:
    """What was typed, what is wrong with it, and what to type or read."""
    text = error.format_message().rstrip(".")
    if type(error).__name__ == "MissingParameter":
        name = error.param.opts[0]
        text = f"{name if name.startswith('-') else name.upper()} is missing"
    # Typer has the values of options checked by Pydantic.
    found: list[Any] = getattr(error.__cause__, "errors", list)()
    if found and error.param is not None:
        text = f"{error.param.opts[-1]} {found[0]['input'] or repr('')}: {_expected(found[0])}"
    if error.ctx and not text.endswith("?"):
        text += f"; see `{error.ctx.command_path} --help`"
    return " ".join(text.split())
