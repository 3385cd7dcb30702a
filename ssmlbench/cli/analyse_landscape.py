"""`ssmlbench analyse landscape`: loss and mAP around the weights of kept models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ssmlbench.cli.board_options import BoardOptions, board_numbers
from ssmlbench.cli.options import PluginFiles, load_plugins
from ssmlbench.cli.run_options import with_options
from ssmlbench.core.console import Console
from ssmlbench.core.errors import UserError
from ssmlbench.core.files import check_folder

if TYPE_CHECKING:
    from ssmlbench.boards.analyses.contract import Findings, RunCell
    from ssmlbench.plugins.loader import Plugins
    from ssmlbench.runs.surface import Surface

OWN = "This analysis"


@with_options(options=BoardOptions, numbers=board_numbers())
def landscape(
    *,
    points: Annotated[
        int, typer.Option(help="Offsets along one direction: odd.", rich_help_panel=OWN)
    ] = 21,
    grid: Annotated[
        int,
        typer.Option(
            help="Offsets along each of two directions: odd; 0 for none.", rich_help_panel=OWN
        ),
    ] = 9,
    radius: Annotated[
        float, typer.Option(help="Largest offset, in lengths of the filters.", rich_help_panel=OWN)
    ] = 1.0,
    rows: Annotated[
        int, typer.Option(help="Labelled rows, and test rows, at most.", rich_help_panel=OWN)
    ] = 1000,
    seed: Annotated[
        int, typer.Option(help="Seed of the directions.", min=0, rich_help_panel=OWN)
    ] = 0,
    device: Annotated[
        str, typer.Option(help="auto, cpu, cuda, mps.", rich_help_panel=OWN)
    ] = "auto",
    plugin: PluginFiles = None,
    out: Annotated[
        Path, typer.Option(help="The folder that figures and numbers are written to.")
    ] = Path("analyses"),
    options: BoardOptions,
    numbers: dict[str, str | None],
) -> None:
    """Loss and mAP around the final weights of runs that keep their model (slow)."""
    from ssmlbench.boards.analyses.contract import run_cells
    from ssmlbench.cli.analyse import show_findings

    for name, value in (("points", points), ("grid", grid or 3)):
        if value < 3 or value % 2 == 0:
            raise UserError(f"--{name} {value}: an odd number of at least 3, as 0 is in the middle")
    if not 0 < radius < float("inf"):
        raise UserError(f"--radius {radius:g}: must be above 0")
    if rows < 1:
        raise UserError(f"--rows {rows}: must be at least 1")
    check_folder(out, "--out")
    boards = options.boards(options.query(numbers))
    cells = run_cells(boards)
    plugins = load_plugins(plugin)
    findings: list[Findings] = []
    with Console(stderr=True).status("moving the weights"):
        for cell in cells:
            findings += _of_cell(cell, plugins, (points, grid, radius), rows, seed, device)
    if not findings:
        raise UserError(
            "analyse landscape: no run here keeps a model with weights (estimators have none); "
            f"`{cells[0].command(['bce', 'cap'], '--keep-model', lacking=True)}` makes them"
        )
    show_findings(findings, out, boards)


def _of_cell(
    cell: RunCell,
    plugins: Plugins,
    shape: tuple[int, int, float],
    rows: int,
    seed: int,
    device: str,
) -> list[Findings]:
    """The findings of one cell: the first run with a model of each row."""
    import numpy as np

    from ssmlbench.boards.analyses.landscape import landscape_findings
    from ssmlbench.runs.execute import quieten
    from ssmlbench.runs.folder import RunFolder
    from ssmlbench.runs.landscape import surface_around
    from ssmlbench.runs.saved_model import SavedModel

    quieten()
    points, grid, radius = shape
    offsets = [
        np.linspace(-radius, radius, count) if count else np.zeros(0) for count in (points, grid)
    ]
    surfaces: dict[str, Surface] = {}
    left: list[str] = []
    notes: list[str] = []
    for row, runs in cell.rows.items():
        kept = [
            run
            for run in runs
            if RunFolder(run.folder).model_file.is_file() and not run.spec.is_estimator
        ]
        if not kept:
            left.append(row)
            continue
        model = SavedModel(kept[0].folder, plugins, device=device)
        notes += [f"{row}: {note}" for note in model.notes]
        surfaces[row] = surface_around(model, offsets[0], offsets[1], rows, seed)
    if left:
        notes.append(f"left out, without a kept model or without weights: {', '.join(left)}")
    return landscape_findings(cell.where, surfaces, notes) if surfaces else []
