"""The command line: reads what was typed, calls the engine, prints. torch is imported only for runs.

One module for each verb or group of verbs; verbs.py lists them.
"""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any

import typer
from rich.console import Console

import ssmlbench
from ssmlbench.cli.verbs import Verbs
from ssmlbench.core.errors import PluginWarning, UserError

app = typer.Typer(
    name="ssmlbench",
    cls=Verbs,
    help="One honest benchmark for semi-supervised multi-label learning.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


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
        Console(stderr=True).print("stopped; the same command continues from here")
        sys.exit(130)


def _show_plugin_warnings_on_one_line() -> None:
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, PluginWarning):
            Console(stderr=True).print(f"warning: {message}", highlight=False, soft_wrap=True)
        else:
            usual(message, category, *rest, **more)

    warnings.showwarning = show


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ssmlbench {ssmlbench.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of `ssmlbench` itself."""
