"""The options by which `compare`, `report` and `plot` choose runs and columns."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from ssmlbench.cli.options import ResultsFolders, read_runs, typed_list
from ssmlbench.cli.run_options import in_panel, number_parameters
from ssmlbench.core.spec import OPTIONS

if TYPE_CHECKING:
    from ssmlbench.boards.board import Board
    from ssmlbench.boards.query import Query


@dataclass(frozen=True)
class BoardOptions:
    """Which runs are shown, and how their scores become numbers."""

    PANEL: ClassVar[str] = "Which runs and columns"

    results: ResultsFolders = None
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
        )

    def boards(self, query: Query) -> list[Board]:
        """Return the boards of the finished runs that fit, at least one."""
        from ssmlbench.boards.build import build_boards
        from ssmlbench.boards.from_python import nothing_fits

        runs = read_runs(self.results or [Path("results")])
        boards = build_boards(runs, query)
        if not boards:
            raise nothing_fits(runs)
        return boards


def board_numbers() -> list[inspect.Parameter]:
    """Return an option for each regime's number, beside the other filters."""
    return in_panel(number_parameters(), BoardOptions.PANEL)
