"""`ssmlbench doctor`: verify the results and the cache, repair what is damaged, sweep leftovers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ssmlbench.cli.options import PluginFiles, ResultsFolders, load_plugins
from ssmlbench.core.paths import near

if TYPE_CHECKING:
    from ssmlbench.grid.doctor import Checkup
    from ssmlbench.plugins.loader import Plugins


def doctor(
    results: ResultsFolders = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")
    ] = False,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Make runs with damaged files again.")
    ] = False,
    plugin: PluginFiles = None,
) -> None:
    """Verify every file of the results folders and of the cache against its checksum.

    Damaged files are named and, where possible, made again; leftovers of killed processes are deleted.
    Exit code 1 when something is left to do.
    """
    from ssmlbench.grid.doctor import Checkup

    console = Console()
    start = time.monotonic()
    checkup = Checkup(dry_run)
    plugins = load_plugins(plugin)
    roots = [root.resolve() for root in results or [Path("results")]]
    for root in roots:
        if results or root.is_dir():
            checkup.results(root)
    checkup.cache(plugins)
    for finding in checkup.findings:
        _print(console, f"{near(finding.path)}: {finding.problem}; {finding.remedy}")
    _print(console, summary(checkup, time.monotonic() - start))
    left = [finding for finding in checkup.findings if not finding.repaired]
    if rerun and left and not dry_run:
        _rerun(checkup, plugins, roots)
    elif left:
        raise typer.Exit(1)


def summary(checkup: Checkup, seconds: float) -> str:
    """How much was read, and how many things were found."""
    found, left = checkup.findings, sum(not finding.repaired for finding in checkup.findings)
    done = "would be done" if checkup.dry_run else "done"
    megabytes = checkup.bytes / 2**20
    told = f"{len(found) - left} repairs {done}, {left} left to do" if found else "all is well"
    return f"checked {checkup.files:,} files, {megabytes:,.1f} MB, in {seconds:.1f} s: {told}"


def _rerun(checkup: Checkup, plugins: Plugins, roots: list[Path]) -> None:
    from ssmlbench.cli.dispatch import GridCommand
    from ssmlbench.grid.dispatch import Dispatch
    from ssmlbench.grid.doctor import reruns
    from ssmlbench.runs.context import RunContext
    from ssmlbench.runs.execute import quieten
    from ssmlbench.runs.folder import TRIALS

    quieten()
    for root in roots:
        below = [finding for finding in checkup.findings if finding.path.is_relative_to(root)]
        trials = [finding for finding in below if TRIALS in finding.path.parts]
        runs = [finding for finding in below if finding not in trials]
        for folder, findings in ((root, runs), (root / TRIALS, trials)):
            specs = list(reruns(findings))
            if specs:
                GridCommand(Dispatch(RunContext(folder))).make(specs, plugins)


def _print(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
