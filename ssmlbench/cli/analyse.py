"""`ssmlbench analyse NAME`: one command for each analysis; it only parses and prints."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ssmlbench.boards.analyses import analyses_by_name
from ssmlbench.boards.analyses.contract import Analysis, Findings, Option
from ssmlbench.boards.board import Board
from ssmlbench.cli.analyse_landscape import landscape
from ssmlbench.cli.analyse_variants import ablation, sensitivity
from ssmlbench.cli.board_options import BoardOptions, board_numbers
from ssmlbench.cli.options import wide_console
from ssmlbench.cli.run_options import Command, in_panel, parameter, with_options
from ssmlbench.core.console import Console
from ssmlbench.core.files import check_folder
from ssmlbench.core.garbage import rare_collection

analyse_app = typer.Typer(
    help="Analyse finished runs: why, not only which.", no_args_is_help=True, add_completion=False
)
OwnOut = Annotated[Path, typer.Option(help="The folder that figures and numbers are written to.")]


def _parameters(analysis: Analysis) -> list[inspect.Parameter]:
    """The arguments and options that belong to one analysis."""
    arguments = [
        parameter(
            name,
            Annotated[str, typer.Argument(help="A row of the board.")],
            inspect.Parameter.empty,
        )
        for name in analysis.arguments
    ]
    return [
        *arguments,
        *in_panel([_parameter(option) for option in analysis.options], "This analysis"),
    ]


def _parameter(option: Option) -> inspect.Parameter:
    kind = str if option.default is None else type(option.default)
    shown = option.default if option.default not in ("", None) else False
    declared = typer.Option(option.flag, help=option.help, show_default=shown, min=option.least)
    return parameter(option.name, Annotated[kind, declared], option.default)


def _command(analysis: Analysis) -> Command:
    own = _parameters(analysis)

    if not analysis.needs_runs:

        @with_options(own=own)
        def alone(own: dict[str, Any], out: OwnOut = Path("analyses")) -> None:
            from ssmlbench.boards.query import Query

            check_folder(out, "--out")
            find_and_show(analysis, [], Query(), own, out)

        return alone

    @with_options(own=own, options=BoardOptions, numbers=board_numbers())
    def of_runs(
        *,
        own: dict[str, Any],
        out: OwnOut = Path("analyses"),
        options: BoardOptions,
        numbers: dict[str, str | None],
    ) -> None:
        check_folder(out, "--out")
        query = options.query(numbers)
        find_and_show(analysis, options.boards(query), query, own, out)

    return of_runs


def find_and_show(
    analysis: Analysis, boards: Any, query: Any, own: dict[str, Any], out: Path
) -> None:
    """Make the analysis, print its tables and write its files."""
    from ssmlbench.boards.analyses.contract import run_cells
    from ssmlbench.boards.analyses.damage import find_with

    show_findings(find_with(analysis, run_cells(boards), query, own), out, boards)


def show_findings(found: Sequence[Findings], out: Path, boards: Sequence[Board] = ()) -> None:
    """Print the tables of the findings and write their files; a method looks the same in all figures."""
    from ssmlbench.boards.analyses.output import write_findings
    from ssmlbench.boards.render import Document, print_document
    from ssmlbench.boards.report.sections import styles_of
    from ssmlbench.boards.report.style import drawn_with

    print_document(Document([findings.table for findings in found]), "table", wide_console())
    drawing = Console(stderr=True).status("drawing the figures")
    with rare_collection(), drawing, drawn_with(styles_of(boards)):
        written = write_findings(found, out)
    stems = dict.fromkeys(file.with_suffix("").name for file in written)
    Console().print_line(f"{out}: {', '.join(f'{stem}.*' for stem in stems)}")


for _name, _analysis in analyses_by_name().items():
    analyse_app.command(_name, help=_analysis.summary)(_command(_analysis))
analyse_app.command("ablation")(ablation)
analyse_app.command("sensitivity")(sensitivity)
analyse_app.command("landscape")(landscape)
