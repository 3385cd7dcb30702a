"""`ssmlbench check`: the conformance suite on a plugin, one line for each statement."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ssmlbench.core.errors import RunFailed, UserError
from ssmlbench.core.registry import source_file

if TYPE_CHECKING:
    from ssmlbench.checks.encoders import Statement
    from ssmlbench.inputs.encoders import Encoder
    from ssmlbench.kit.estimator import Estimator
    from ssmlbench.kit.method import Method

    Plugin = type[Method | Estimator | Encoder]


def check(
    target: Annotated[
        str, typer.Argument(help="A plugin file, or the name of a method, estimator or encoder.")
    ],
) -> None:
    """Run the conformance suite on a method, estimator or encoder, on the CPU, within a minute."""
    if not check_plugins(target, Console()):
        raise typer.Exit(2)


def check_plugins(target: str, console: Console) -> bool:
    """Check the methods, estimators and encoders of a file, or one by name; True if everything holds."""
    from ssmlbench.checks.encoders import encoder_statements
    from ssmlbench.checks.estimators import estimator_statements
    from ssmlbench.checks.methods import method_statements
    from ssmlbench.kit.estimator import Estimator
    from ssmlbench.plugins.loader import Plugins, load_file

    if target.endswith(".py") or "/" in target:
        file = Path(target).resolve()
        plugins = Plugins([file])
        module = load_file(file)
        methods = [plugins.methods[n] for n in plugins.methods]
        encoders = [plugins.encoders[n] for n in plugins.encoders]
        methods = [cls for cls in methods if cls.__module__ == module.__name__]
        encoders = [cls for cls in encoders if cls.__module__ == module.__name__]
        if not methods and not encoders:
            raise UserError(f"{target}: there is no method, estimator or encoder in it")
    else:
        plugins = Plugins()
        is_encoder = target in plugins.encoders
        methods = [] if is_encoder else [plugins.methods[target]]
        encoders = [plugins.encoders[target]] if is_encoder else []
    statements: list[tuple[Plugin, Iterator[Statement]]]
    statements = [
        (cls, estimator_statements(cls) if issubclass(cls, Estimator) else method_statements(cls))
        for cls in methods
    ]
    statements += [(cls, encoder_statements(cls)) for cls in encoders]
    holds = [_check_one(cls, checks, console) for cls, checks in statements]
    return all(holds)


def _check_one(cls: Plugin, statements: Iterable[Statement], console: Console) -> bool:
    """Run a plugin's checks and print each; True if all hold."""
    from ssmlbench.checks.encoders import Broken

    broken = 0
    console.print(f"[bold]{cls.name}[/bold]  {source_file(cls)}", highlight=False, soft_wrap=True)
    for statement, run in statements:
        try:
            run()
        except (Broken, RunFailed, UserError) as problem:
            reason = str(problem)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}{_line(error, cls)}"
        else:
            console.print(f"  [green]ok[/green]      {statement}", highlight=False)
            continue
        broken += 1
        console.print(f"  [red]BROKEN[/red]  {statement}", highlight=False)
        console.print(f"          {reason}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"{cls.name}: " + (f"{broken} broken" if broken else "everything holds"))
    return not broken


def _line(error: BaseException, cls: Plugin) -> str:
    """The line of the plugin's file where it happened."""
    file = str(source_file(cls))
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return f" (line {lines[-1]} of {Path(file).name})" if lines else ""
