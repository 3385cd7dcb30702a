"""The command line: parses options, calls the engine, prints. torch is imported only for runs.

One module for each verb or group of verbs; verbs.py lists them.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from typing import Annotated

import typer

import ssmlbench
from ssmlbench.cli.verbs import Verbs
from ssmlbench.core.console import Console
from ssmlbench.core.errors import DISK_ERRORS, UserError, disk_error
from ssmlbench.core.paths import working_folder_exists
from ssmlbench.core.plain_text import error_text, printable
from ssmlbench.core.plain_warnings import show_plainly
from ssmlbench.core.process_environment import fixed_environment

UTF_8 = ("utf-8", "utf8")

app = typer.Typer(
    name="ssmlbench",
    cls=Verbs,
    help="One honest benchmark for semi-supervised multi-label learning.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)


def main() -> None:
    """The console script: a user's mistake is one line and exit code 2, never a traceback.

    After Ctrl-C the parser itself ends with exit code 130.
    """
    _write_any_character()
    _ignore_zero_width()
    try:
        with warnings.catch_warnings(), fixed_environment():
            show_plainly()
            app(prog_name="ssmlbench")
    except UserError as error:
        text = printable(f"error: {error_text(error)}")
        Console(stderr=True).print(text, style="red", soft_wrap=True)
        sys.exit(2)
    except OSError as error:
        if error.errno in DISK_ERRORS:
            text = disk_error(error)
        elif not working_folder_exists():
            text = "the folder that you are in does not exist any more; go to another one"
        else:
            raise
        Console(stderr=True).print(f"error: {text}", style="red", soft_wrap=True)
        sys.exit(2)


def _write_any_character() -> None:
    """If the locale is not UTF-8: files and pipes get UTF-8, a terminal `?` for unknown characters."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in UTF_8:
            encoding = stream.encoding if stream.isatty() else "utf-8"
            stream.reconfigure(encoding=encoding, errors="replace")


def _ignore_zero_width() -> None:
    """Forget a width of 0, which some terminals without a window have: nothing would be printed."""
    if os.environ.get("COLUMNS", "1").strip("0 ") == "":
        del os.environ["COLUMNS"]


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
