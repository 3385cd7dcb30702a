"""The options by which `compare`, `report` and `plot` choose runs and columns."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from ssmlbench.cli.options import ResultsFolders, read_runs, typed_list, warn
from ssmlbench.cli.run_options import in_panel, number_parameters
from ssmlbench.core.spec import OPTIONS

if TYPE_CHECKING:
    from ssmlbench.boards.board import Board
    from ssmlbench.boards.query import Query
    from ssmlbench.runs.finished import Finished


@dataclass(frozen=True)
class BoardOptions:
    """The choice of runs, and of the metrics from their scores."""

    PANEL: ClassVar[str] = "Which runs and columns"

    results: ResultsFolders = None
    files: Annotated[
        list[Path] | None,
        typer.Option("--from", help="A file of --export instead of results; may be repeated."),
    ] = None
    prefer: Annotated[
        Path | None,
        typer.Option(
            help="Results folder or file to use if a run has different numbers in two of them."
        ),
    ] = None
    dataset: Annotated[str | None, typer.Option(help="Only these data sets.")] = None
    regime: Annotated[str | None, typer.Option(help="Only these regimes.")] = None
    method: Annotated[str | None, typer.Option(help="Only these methods.")] = None
    selection: Annotated[str | None, typer.Option(help="Only runs with this selection.")] = None
    metric: Annotated[
        str | None,
        typer.Option(
            help="Columns, e.g. map,micro_f1,seconds_per_epoch; an unknown name lists all."
        ),
    ] = None
    decision: Annotated[
        str | None,
        typer.Option(
            help="Decision rule, e.g. calibrated (the default), threshold, top-k‡ (the papers' oracle "
            "rule, the default of compare --published); an unknown name lists all."
        ),
    ] = None
    versions: Annotated[
        str,
        typer.Option(
            help="Versions of a method's code: newest, all (older ones as separate rows), or the first "
            "digits of a digest."
        ),
    ] = "newest"
    convention: Annotated[
        str,
        typer.Option(help="default, or released (empty labels count 0, ties favour the model)."),
    ] = "default"

    def query(
        self,
        numbers: Mapping[str, str | None],
        default_decision: str = "calibrated",
        draws: int = 0,
        baseline: str = "auto",
    ) -> Query:
        """Return the query; `numbers` are the texts of the regimes' numbers, by field of the spec."""
        from ssmlbench.boards.query import Query
        from ssmlbench.protocol.metrics import METRICS

        return Query(
            datasets=typed_list(self.dataset, str, "--dataset"),
            regimes=typed_list(self.regime, str, "--regime"),
            numbers={
                name: typed_list(text, float, OPTIONS[name].flag)
                for name, text in numbers.items()
                if text is not None
            },
            methods=typed_list(self.method, str, "--method"),
            selections=typed_list(self.selection, str, "--selection"),
            metrics=typed_list(self.metric, str, "--metric") or tuple(METRICS),
            decision=self.decision or default_decision,
            convention=self.convention,
            draws=draws,
            baseline=baseline,
            versions=typed_list(self.versions, str, "--versions"),
        )

    def runs(self, may_be_none: bool = False) -> list[Finished]:
        """Return the runs of the results folders and files, each once."""
        from ssmlbench.boards.csv_files import read_exported
        from ssmlbench.runs.merge import merge_runs

        runs, complaints = read_exported(self.files or ())
        warn(complaints)
        roots = self.results or ([] if self.files else [Path("results")])
        if not (may_be_none and not self.results and roots and not roots[0].is_dir()):
            runs += read_runs(roots)
        return merge_runs(runs, self.prefer)

    def boards(self, query: Query) -> list[Board]:
        """Return the boards of the finished runs that fit, at least one."""
        from ssmlbench.boards.build import build_boards

        runs = self.runs()
        boards = build_boards(runs, query)
        if not boards:
            raise query.unfit(runs)
        warn(query.unmet(runs))
        return boards


def board_numbers() -> list[inspect.Parameter]:
    """Return an option for each regime's number, beside the other filters."""
    return in_panel(number_parameters(), BoardOptions.PANEL)
