"""The command line. It parses, asks the engine, prints; torch is imported only when something runs.

One module a command or a group of them; this one puts them together.
"""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any

import typer
from rich.console import Console

import ssmlbench
from ssmlbench.cli.cache import cache_app
from ssmlbench.cli.check import check
from ssmlbench.cli.compare import compare
from ssmlbench.cli.data import data_app
from ssmlbench.cli.plugins import datasets_command, methods, new_app
from ssmlbench.cli.report import plot, report
from ssmlbench.cli.run import run
from ssmlbench.cli.status import status
from ssmlbench.cli.tune import tune
from ssmlbench.core.errors import PluginWarning, UserError

app = typer.Typer(
    name="ssmlbench",
    help="One honest benchmark for semi-supervised multi-label learning.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command()(run)
app.command()(tune)
app.command()(status)
app.command()(compare)
app.command()(report)
app.command()(plot)
app.command()(methods)
app.command("datasets")(datasets_command)
app.command()(check)
app.add_typer(new_app, name="new")
app.add_typer(data_app, name="data")
app.add_typer(cache_app, name="cache")


def main() -> None:
    """The console script: a user's mistake is one line and exit code 2, never a traceback."""
    try:
        with warnings.catch_warnings():
            _show_plugin_warnings_on_one_line()
            app()
    except UserError as error:
        Console(stderr=True).print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped; the same command goes on from here")
        sys.exit(130)


def _show_plugin_warnings_on_one_line() -> None:
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, PluginWarning):
            Console(stderr=True).print(f"warning: {message}", highlight=False, soft_wrap=True)
        else:
            usual(message, category, *rest, **more)

    warnings.showwarning = show


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ssmlbench {ssmlbench.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
