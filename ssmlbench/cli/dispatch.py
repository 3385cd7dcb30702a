"""From a list of run specs to an engine: where, how many at a time, and what the user is told."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import RunSpec

if TYPE_CHECKING:
    from ssmlbench.grid import Summary
    from ssmlbench.grid.display import Display
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.context import RunContext

ENGINES = ("local", "ray", "slurm")


@dataclass
class Dispatch:
    """How the runs of one command are made."""

    place: RunContext
    engine: str = "local"
    jobs: int | None = None  # None: what the machine can carry
    workers: int | None = None
    address: str | None = None  # of a Ray cluster
    slurm: Mapping[str, str] = field(default_factory=dict)
    quiet: bool = False
    dry_run: bool = False
    console: Console = field(default_factory=Console)

    def check_device(self) -> None:
        """On a cluster the device is another machine's: there only the name can be checked."""
        from ssmlbench.training.device import DEVICES, pick_device

        if self.engine == "local" or self.place.device not in DEVICES:
            pick_device(self.place.device)

    def make(self, specs: Sequence[RunSpec], plugins: Plugins) -> None:
        """Make the runs, or show what would be made; the exit code is 2 if one failed."""
        from ssmlbench.cli.dry_run import show_plan

        if self.engine == "local":
            self._share_machine(specs, plugins)
        if self.dry_run:
            show_plan(specs, plugins, self.place, self.jobs or 1, self.console)
            return
        check_writable(self.place.results)
        if self.engine == "slurm":
            self._submit(specs, plugins)
            return
        from ssmlbench.grid.display import Display

        try:
            with Display(self.console, len(specs), self.quiet) as display:
                summary = self._run(specs, plugins, display)
        except KeyboardInterrupt:
            left = len(specs) - display.closed
            runs = "run" if left == 1 else "runs"
            self._stop(f"stopped with {left} {runs} left; the same command goes on from here")
        self._tell(summary)
        if summary.failed:
            raise typer.Exit(2)

    def _share_machine(self, specs: Sequence[RunSpec], plugins: Plugins) -> None:
        """Decide how many runs are made at a time here, and what each gets of the cores."""
        from ssmlbench.grid.resources import Machine, threads_wanted
        from ssmlbench.runs.folder import RunFolder

        self.machine = Machine.here(self.place.device)
        if self.jobs is None:
            open_ = [s for s in specs if not RunFolder.of(self.place.results, s).finished]
            self.jobs = self.machine.jobs(threads_wanted(open_, plugins, self.place))
        cores = self.machine.cores
        share = max(1, cores // self.jobs)
        workers = share if self.workers is None else self.workers
        self.place = replace(self.place, workers=workers, cores=share)
        if self.jobs * (self.place.threads or 1) > cores and not self.dry_run:
            each = f" with --threads {self.place.threads}" if self.place.threads else ""
            self.console.print(
                f"warning: --jobs {self.jobs}{each} on {cores} cores: the runs will share them",
                highlight=False,
            )

    def _run(self, specs: Sequence[RunSpec], plugins: Plugins, display: Display) -> Summary:
        if self.engine == "local":
            from ssmlbench import grid

            assert self.jobs is not None
            gpus = self.machine.gpus
            return grid.run_all(specs, plugins, self.place, self.jobs, display.report, gpus)
        from ssmlbench.grid.engines.ray import run_all

        place = replace(self.place, workers=1 if self.workers is None else self.workers)
        return run_all(specs, plugins, place, self.jobs, display.report, self.address)

    def _submit(self, specs: Sequence[RunSpec], plugins: Plugins) -> None:
        from ssmlbench.grid.engines.slurm import submit

        place = replace(self.place, workers=1 if self.workers is None else self.workers)
        made = submit(specs, plugins, place, self.jobs, self.slurm)
        if not self.quiet:
            for line in made.lines():
                self.console.print(line, highlight=False, soft_wrap=True)
            self.console.print(
                f"`ssmlbench status --results {near(self.place.results)}` shows how they are doing",
                highlight=False,
                soft_wrap=True,
            )

    def _tell(self, summary: Summary) -> None:
        """The last lines: what failed, once more and together, and the count."""
        results = near(self.place.results)
        if len(summary.failed) > 1 or (summary.failed and summary.done):
            for spec, text in summary.failed:
                self._say(f"failed: {spec}: {text.splitlines()[0]}")
        if not self.quiet:
            self._say(
                f"{summary.done} done, {summary.already} already there, "
                f"{len(summary.failed)} failed; `ssmlbench compare --results {results}` shows them"
            )
        if summary.failed:
            self._say(
                f"`ssmlbench status --failed --results {results}` shows the errors; the same "
                "command tries again"
            )

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _stop(self, line: str) -> None:
        Console(stderr=True).print(line, highlight=False, soft_wrap=True)
        raise typer.Exit(130)


def near(folder: Path) -> Path:
    """As seen from here, if it is below."""
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def check_writable(results: Path) -> None:
    try:
        results.mkdir(parents=True, exist_ok=True)
        probe = results / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"cannot write to {near(results)}: {error.strerror}; choose another folder with "
            "--results"
        ) from None
