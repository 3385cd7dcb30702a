"""The command line: parses options, calls the engine, prints. torch is imported only for runs.

One module for each verb or group of verbs; verbs.py lists them.
"""

from __future__ import annotations

import atexit
import io
import os
import signal
import sys
import threading
import warnings
from typing import Annotated, NoReturn

import typer

import ssmlbench
from ssmlbench.cli.plugin_faults import do_not_wait_for_threads, plugin_fault
from ssmlbench.cli.verbs import Verbs
from ssmlbench.core.console import Console
from ssmlbench.core.errors import AGAIN, DISK_ERRORS, UserError, disk_error
from ssmlbench.core.paths import working_folder_exists
from ssmlbench.core.plain_text import error_text, one_line, printable
from ssmlbench.core.plain_warnings import show_plainly
from ssmlbench.core.process_environment import fixed_environment

UTF_8 = ("utf-8", "utf8")
INTERRUPTED = 130
"""The exit code after Ctrl-C."""

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
    threads = set(threading.enumerate())
    try:
        with warnings.catch_warnings(), fixed_environment():
            show_plainly()
            app(prog_name="ssmlbench")
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            Console(stderr=True).show_cursor()  # a table hides it before it can be stopped
        if (line := plugin_fault(ended)) is None:
            raise
        _end_with(line)
    except UserError as error:
        _end_with(error_text(error))
    except (OSError, MemoryError) as error:
        if (line := _line_about(error) or plugin_fault(error)) is None:
            raise
        _end_with(one_line(line))
    except BaseException as error:
        if (line := plugin_fault(error)) is None:
            raise
        _end_with(line)
    finally:
        do_not_wait_for_threads(threads, _exit_code(sys.exception()))
        # Ctrl-C while Python takes its modules down: there is nothing left to stop.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def _end_with(line: str) -> NoReturn:
    text = printable(f"error: {line}")
    Console(stderr=True).print(text, style="red", soft_wrap=True)
    sys.exit(2)


def _exit_code(error: BaseException | None) -> int:
    """The exit code of a process that ends with this exception."""
    code = error.code if isinstance(error, SystemExit) else error and 1
    return code if isinstance(code, int) else int(code is not None)


def _line_about(error: OSError | MemoryError) -> str | None:
    """One line about an error of the machine; None if it may be a bug of ours."""
    if isinstance(error, MemoryError):
        return f"there is too little memory; free some, then {AGAIN}"
    if error.errno not in DISK_ERRORS and not working_folder_exists():
        return "the folder that you are in does not exist any more; go to another one"
    return disk_error(error)


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
