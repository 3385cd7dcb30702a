"""The analyses in the report: a section for each whose data the runs have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ssmlbench.boards.board import Board
from ssmlbench.boards.query import Query
from ssmlbench.boards.report.series import Series
from ssmlbench.core.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ssmlbench.boards.analyses.contract import Findings

CELLS = 4
"""Levels of boards that are analysed in a report; `ssmlbench analyse` does all."""
RUNS = 100
"""Runs of a level up to which it is analysed in a report."""
MOST_VARIANTS = 6
"""Figures of ablations, and of sensitivity, in a report."""


@dataclass(frozen=True)
class AnalysisFigure(Series):
    """The figure of one finding."""

    heading: str
    text: str
    draw: Callable[[], Figure]

    @property
    def title(self) -> str:
        """The title of the figure."""
        return self.heading

    @property
    def alt(self) -> str:
        """The figure in words."""
        return self.text


@dataclass(frozen=True)
class AnalysisSection:
    """The findings of one analysis."""

    name: str
    summary: str
    figures: list[AnalysisFigure]
    notes: list[str]


def analysis_sections(boards: Sequence[Board], query: Query) -> list[AnalysisSection]:
    """One for each analysis with data; an analysis without data is left out."""
    from ssmlbench.boards.analyses import analyses_by_name
    from ssmlbench.boards.analyses.board_variants import ablations_found, sensitivities_found
    from ssmlbench.boards.analyses.contract import run_cells
    from ssmlbench.boards.analyses.damage import NothingSound, find_with

    cells = [c for c in run_cells(boards) if sum(map(len, c.rows.values())) <= RUNS][:CELLS]
    sections = []
    for analysis in analyses_by_name().values() if cells else ():
        if not (analysis.in_report and analysis.needs_runs):
            continue
        options = {option.name: option.default for option in analysis.options}
        try:
            findings = find_with(analysis, cells, query, options)
        except NothingSound as error:
            sections.append(AnalysisSection(analysis.name, analysis.summary, [], [str(error)]))
            continue
        except UserError:
            continue
        sections.append(_section(analysis.name, analysis.summary, findings))
    of_variants = (
        ("ablation", "Rows of one method against it as it is, seed by seed.", ablations_found),
        ("sensitivity", "Metrics over the values of a hyper-parameter.", sensitivities_found),
    )
    for name, summary, find in of_variants:
        if findings := find(cells, query)[:MOST_VARIANTS]:
            sections.append(_section(name, summary, findings))
    return sections


def _section(name: str, summary: str, findings: Sequence[Findings]) -> AnalysisSection:
    figures = [_figure(each) for each in findings]
    notes = list(dict.fromkeys(note for each in findings for note in each.table.notes))
    return AnalysisSection(name, summary, figures, notes)


def _figure(findings: Findings) -> AnalysisFigure:
    return AnalysisFigure(
        findings.where, findings.table.title, findings.alt or findings.table.title, findings.draw
    )
