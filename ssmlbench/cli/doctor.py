"""`ssmlbench doctor`: verifies the results and the cache, repairs damage, deletes leftovers.

With `--gpu` it checks the device instead.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ssmlbench.cli.options import PluginFiles, ResultsFolders, load_plugins
from ssmlbench.core.console import Console
from ssmlbench.core.errors import UserError
from ssmlbench.core.files import check_output, write_json, write_output
from ssmlbench.core.paths import near

if TYPE_CHECKING:
    from ssmlbench.core.spec import RunSpec
    from ssmlbench.grid.doctor import Checkup
    from ssmlbench.plugins.loader import Plugins


def doctor(
    results: ResultsFolders = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")
    ] = False,
    rerun: Annotated[bool, typer.Option("--rerun", help="Repeat runs with damaged files.")] = False,
    gpu: Annotated[
        bool,
        typer.Option(
            "--gpu",
            help="Check the device instead: methods against the CPU, precision and speed, on one page.",
        ),
    ] = False,
    device: Annotated[str, typer.Option(help="--gpu: auto, cuda, cuda:1, mps, cpu.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="--gpu: write the page to this file.")] = None,
    plugin: PluginFiles = None,
) -> None:
    """Verify every file of the results folders and of the cache against its checksum.

    Damaged files are named and, where possible, replaced; leftovers of killed processes are deleted.
    Exit code 1 when something is left to do. --gpu prints a page to paste into an issue.
    """
    if gpu:
        if results or dry_run or rerun:
            raise UserError("--gpu looks at the device alone; leave the other options out")
        _look_at_device(load_plugins(plugin), device, out)
        return
    if out is not None or device != "auto":
        raise UserError("--out and --device belong to doctor --gpu; add --gpu")
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
        console.print_line(f"{near(finding.path)}: {finding.problem}; {finding.remedy}")
    console.print_line(summary(checkup, time.monotonic() - start))
    left = [finding for finding in checkup.findings if not finding.repaired]
    if rerun and not dry_run:
        not_repeated = _rerun(checkup, plugins, roots)
        left = [finding for finding in left if finding.spec in (None, *not_repeated)]
    if left:
        raise typer.Exit(1)


def summary(checkup: Checkup, seconds: float) -> str:
    """A line with the amount of data that was read, and the number of findings."""
    found, left = checkup.findings, sum(not finding.repaired for finding in checkup.findings)
    done = "would be done" if checkup.dry_run else "done"
    megabytes = checkup.bytes / 2**20
    outcome = f"{len(found) - left} repairs {done}, {left} left to do" if found else "all is well"
    return f"checked {checkup.files:,} files, {megabytes:,.1f} MB, in {seconds:.1f} s: {outcome}"


def _rerun(checkup: Checkup, plugins: Plugins, roots: list[Path]) -> list[RunSpec]:
    """Repeat the damaged runs that the present code makes as they were; returns the others."""
    from ssmlbench.cli.dispatch import GridCommand
    from ssmlbench.grid.dispatch import Dispatch
    from ssmlbench.grid.reruns import obstacle, reruns
    from ssmlbench.runs.context import RunContext
    from ssmlbench.runs.execute import quieten
    from ssmlbench.runs.folder import TRIALS, RunFolder

    quieten()
    console, left, failed = Console(), [], False
    for root in roots:
        below = [finding for finding in checkup.findings if finding.path.is_relative_to(root)]
        trials = [finding for finding in below if TRIALS in finding.path.parts]
        runs = [finding for finding in below if finding not in trials]
        for folder, findings in ((root, runs), (root / TRIALS, trials)):
            specs = list(reruns(findings))
            for spec in specs:
                run = RunFolder.of(folder, spec)
                if why := obstacle(run, spec, plugins, root):
                    console.print_line(f"{near(run.path)}: not repeated: {why}")
                    left.append(spec)
                else:  # its result is deleted when it is begun, and this may be stopped
                    write_json(run.repeat_file, spec.as_dict())
            if known := [spec for spec in specs if spec not in left]:
                try:
                    GridCommand(Dispatch(RunContext(folder))).make(known, plugins)
                except typer.Exit as ended:
                    if ended.exit_code != 1:
                        raise
                    failed = True
    if failed:
        raise typer.Exit(1)
    return left


def _look_at_device(plugins: Plugins, device: str, out: Path | None) -> None:
    """Print the page about a device; exit code 1 if a part of it differs or failed."""
    from ssmlbench.checks.gpu.report import GpuReport
    from ssmlbench.checks.gpu.subject import Subject
    from ssmlbench.runs.execute import quieten
    from ssmlbench.training.device import pick_device

    if out is not None:
        check_output(out, ".md", ".txt")
    subject = Subject.of(pick_device(device))
    quieten()
    progress = Console(stderr=True)
    page = GpuReport(
        plugins, subject, report=lambda line: progress.print_line(f"{line.part}: {line.state}")
    ).page()
    if out is None:
        typer.echo(page.markdown(), nl=False)
    else:
        write_output(out, page.markdown())
        Console().print_line(f"{page.summary}; the page is in {out}")
    if not page.sound:
        raise typer.Exit(1)
