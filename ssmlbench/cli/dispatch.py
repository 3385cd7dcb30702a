"""The common part of `run` and `tune`: the options of the engines, and the output of a dispatch."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ssmlbench.cli import INTERRUPTED
from ssmlbench.cli.options import key_values
from ssmlbench.cli.run_options import parameter
from ssmlbench.core.commands import suggested
from ssmlbench.core.console import Console
from ssmlbench.core.counts import counted
from ssmlbench.core.plain_text import printable
from ssmlbench.core.spec import RunSpec
from ssmlbench.core.stopping import EXIT_CODE, Stopped
from ssmlbench.grid.engines import engines
from ssmlbench.runs.folder import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

    from ssmlbench.grid.cached_grids import CachedRun
    from ssmlbench.grid.dispatch import Dispatch
    from ssmlbench.grid.engines.base import Submission
    from ssmlbench.grid.run_one import Summary
    from ssmlbench.plugins.loader import Plugins


def engine_parameters() -> list[inspect.Parameter]:
    """`--engine` and the options of all engines, as parameters of a command."""
    known = [engines()[name] for name in engines()]
    names = ", ".join(f"{cls.name}: {cls.help}" for cls in known)
    about = Annotated[str, typer.Option("--engine", help=f"Where runs are made. {names}.")]
    parameters = [parameter("engine", about, "local")]
    for cls in known:
        for option in cls.options:
            kind: Any = list[str] | None if option.example else str | None
            help_ = f"--engine {cls.name}: {option.help}"
            declared = Annotated[kind, typer.Option(f"--{option.name}", help=help_)]
            parameters.append(parameter(_python_name(option.name), declared))
    return parameters


def engine_options(typed: Mapping[str, Any]) -> dict[str, Any]:
    """The given options of the engines, by name; key=value texts as a mapping."""
    values = {}
    for name in engines():
        for option in engines()[name].options:
            value = typed.get(_python_name(option.name))
            if value:
                values[option.name] = (
                    key_values(value, f"--{option.name}", option.example)
                    if option.example
                    else value
                )
    return values


def _python_name(option: str) -> str:
    return option.replace("-", "_")


@dataclass
class GridCommand:
    """Makes the runs of one command, or shows which it would make."""

    dispatch: Dispatch
    quiet: bool = False
    dry_run: bool = False
    console: Console = field(default_factory=Console)
    loggers: Sequence[str] = ()  # of `--log`
    noted: bool = False  # whether a note on how the runs are made was printed

    def make(self, specs: Sequence[RunSpec], plugins: Plugins) -> bool:
        """Make the runs; the exit code is 1 if one failed, 130 after Ctrl-C, 143 after SIGTERM.

        Returns whether all runs are finished and no note was printed.
        """
        from ssmlbench.cli.dry_run import show_plan
        from ssmlbench.grid.display import Display
        from ssmlbench.grid.engines.base import Submission
        from ssmlbench.grid.loggers import LoggingThread

        plan = self.dispatch.plan(specs, plugins)
        if self.dry_run:
            show_plan(specs, plugins, plan.context, plan.jobs or 1, self.console)
            return False
        for note in plan.notes:
            self._print(f"warning: {note}")
        logs = LoggingThread(
            self.loggers, plan.context.results, lambda line: self._print(f"warning: {line}")
        )
        try:
            with logs, Display(self.console, len(specs), self.quiet) as display:
                outcome = self.dispatch.run(plan, logs.listening(display.report))
        except KeyboardInterrupt as stop:
            left = len(specs) - display.closed
            line = f"stopped with {counted(left, 'run')} left; the same command continues from here"
            self._stop(line, EXIT_CODE if isinstance(stop, Stopped) else INTERRUPTED)
        if isinstance(outcome, Submission):
            self._print_submission(outcome)
            return False
        self._print_summary(outcome)
        results = self.dispatch.context.results
        self._print_models(kept_models([RunFolder.of(results, spec) for spec in specs]))
        if outcome.failed:
            raise typer.Exit(1)
        return not (plan.notes or self.noted)

    def print_finished(self, runs: Sequence[CachedRun]) -> None:
        """Print the lines of `make` for runs that are all finished, without planning."""
        from ssmlbench.grid.display import already_done
        from ssmlbench.grid.run_one import Summary

        lines = [already_done(run.text, i, len(runs)) for i, run in enumerate(runs, start=1)]
        self._print_unless_quiet(["\n".join(lines)])
        self._print_summary(Summary(already=len(runs)))
        results = self.dispatch.context.results
        self._print_models([run.weights_file(results) for run in runs])

    def note(self, lines: Sequence[str]) -> None:
        """Print notes on how the runs are made."""
        self.noted = self.noted or bool(lines)
        self._print_unless_quiet(lines)

    def _print_unless_quiet(self, lines: Sequence[str]) -> None:
        """Print lines about the runs, unless `--quiet` is typed."""
        for line in () if self.quiet else lines:
            self._print(line)

    def _print_submission(self, submission: Submission) -> None:
        if not self.quiet:
            for line in submission.lines():
                self._print(line)
            self._print(f"`{self._suggested('status')}` shows how they are doing")

    def _print_summary(self, summary: Summary) -> None:
        """Print all failures together, and the counts."""
        if len(summary.failed) > 1 or (summary.failed and summary.done):
            for spec, text in summary.failed:
                self._print(f"failed: {spec}: {text}")
        if not self.quiet:
            line = f"{summary.done} done, {summary.already} already there, {len(summary.failed)} failed"
            finished = summary.done + summary.already
            self._print(f"{line}; `{self._suggested('compare')}` shows them" if finished else line)
        if summary.failed:
            again = "the same command tries again"
            results = self.dispatch.context.results
            stored = any(
                RunFolder.of(results, spec).error_file.is_file() for spec, _ in summary.failed
            )
            shown = f"`{self._suggested('status', '--failed')}` shows the errors; {again}"
            self._print(shown if stored else again)

    def _print_models(self, files: Sequence[Path]) -> None:
        """Print the number of stored models, and their size on disk."""
        sizes = [file.stat().st_size for file in files if file.is_file()]
        if sizes:
            size = f"{sum(sizes) / 2**20:,.1f} MB"
            self._print_unless_quiet(
                [f"{counted(len(sizes), 'model')} kept, {size}; `ssmlbench predict` uses them"]
            )

    def _suggested(self, *words: str) -> str:
        return suggested(*words, results=self.dispatch.context.results)

    def _print(self, line: str) -> None:
        self.console.print_line(printable(line))

    def _stop(self, line: str, code: int) -> NoReturn:
        Console(stderr=True).print_line(line)
        raise typer.Exit(code)


def kept_models(folders: Sequence[RunFolder]) -> list[Path]:
    """The models of finished runs: one that failed may have stored its model before."""
    return [each.weights_file for each in folders if each.result_file.is_file()]
