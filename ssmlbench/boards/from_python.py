"""`ssmlbench.compare()`: the boards of `ssmlbench compare`, for Python and notebooks."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ssmlbench.boards.board import Board
from ssmlbench.boards.build import build_boards
from ssmlbench.boards.layout import SETS
from ssmlbench.boards.published import read_published
from ssmlbench.boards.query import Query
from ssmlbench.core.arguments import checked, no_such_argument, several, shown
from ssmlbench.core.errors import UserError
from ssmlbench.core.paths import usable
from ssmlbench.core.spec import NUMBERS
from ssmlbench.protocol.metrics import METRICS
from ssmlbench.runs.finished import read_finished
from ssmlbench.runs.merge import merge_runs

if TYPE_CHECKING:
    import pandas as pd

    from ssmlbench.boards.render import Document

Several = str | Iterable[str] | None
Numbers = float | str | Iterable[float] | None
Paths = str | Path | Iterable[str | Path]


class Boards(Sequence[Board]):
    """Leaderboards: one for each data set, regime and setting. A notebook shows them as tables."""

    def __init__(
        self,
        boards: Iterable[Board],
        metrics_chosen: bool = True,
        beside: tuple[Query, Sequence[Path]] | None = None,
    ):
        """beside: the papers' numbers to show with them, as a query and folders of further papers."""
        self._boards = tuple(boards)
        self._metrics_chosen = metrics_chosen
        self._beside = beside

    @overload
    def __getitem__(self, index: int) -> Board: ...

    @overload
    def __getitem__(self, index: slice) -> Boards: ...

    def __getitem__(self, index: int | slice) -> Board | Boards:
        found = self._boards[index]
        if isinstance(found, Board):
            return found
        return Boards(found, self._metrics_chosen, self._beside)

    def __len__(self) -> int:
        return len(self._boards)

    def to_pandas(self) -> pd.DataFrame:
        """Return one row for each cell: data set, regime, level, method, metric, mean, std.

        The table of a paper: `.pivot(index="method", columns=["metric", "level"], values="mean")`.
        """
        from ssmlbench.boards.render import boards_to_pandas

        return boards_to_pandas(self)

    @checked
    def to_markdown(
        self,
        *,
        layout: str = "boards",
        digits: int | None = None,
        percent: bool = False,
        display_names: bool = False,
        rename: Mapping[str, str] | None = None,
    ) -> str:
        """Return Markdown tables, each with its notes; the arguments are those of `to_latex`."""
        from ssmlbench.boards.render import as_markdown

        return as_markdown(self._document(layout, digits, percent, display_names, rename))

    @checked
    def to_latex(
        self,
        *,
        layout: str = "boards",
        digits: int | None = None,
        percent: bool = False,
        display_names: bool = False,
        rename: Mapping[str, str] | None = None,
        align: str = "plain",
        caption: str = "",
        label: str = "",
    ) -> str:
        r"""Return LaTeX tables that a paper can \input, as `ssmlbench compare --format latex` does.

        layout: `boards`; `sets`: methods × (data sets × π), a table for each metric that `compare` was
            asked for (mAP if it was asked for none); `metrics`: methods × metrics, one for each data set.
        digits, percent: how metrics are written; 4 decimals, 2 in percent.
        display_names: methods as papers write them. rename: your names, `{"mine": "Ours"}`.
        align: `plain`, or `siunitx` for S columns.
        caption, label: instead of those that the title gives.
        """
        from ssmlbench.boards.render.latex import LatexStyle, as_latex

        style = LatexStyle(align, caption, label)
        return as_latex(self._document(layout, digits, percent, display_names, rename), style)

    @checked
    def to_html(
        self,
        *,
        layout: str = "boards",
        digits: int | None = None,
        percent: bool = False,
        display_names: bool = False,
        rename: Mapping[str, str] | None = None,
    ) -> str:
        """Return HTML tables, each with its notes; the arguments are those of `to_latex`."""
        from ssmlbench.boards.render.html import as_html

        return as_html(self._document(layout, digits, percent, display_names, rename))

    def _document(
        self,
        layout: str,
        digits: int | None,
        percent: bool,
        display_names: bool,
        rename: Mapping[str, str] | None,
    ) -> Document:
        from ssmlbench.boards.render import table_document
        from ssmlbench.boards.render.names import RowNames
        from ssmlbench.boards.render.numbers import NumberStyle

        boards = list(self._boards)
        style, names = NumberStyle(digits, percent), RowNames(display_names, rename or {})
        only_map = layout == SETS and not self._metrics_chosen
        if only_map:
            boards = [replace(board, metrics=[METRICS["map"]]) for board in boards]
        if self._beside is None:
            return table_document(boards, layout, style, names)
        from ssmlbench.boards.render.published import published_document

        query, papers = self._beside
        query = replace(query, metrics=("map",)) if only_map else query
        return published_document(boards, query, papers, layout, style, names)

    def _repr_html_(self) -> str:
        return self.to_html()

    def __repr__(self) -> str:
        return self.to_markdown()


@checked
def compare(
    results: Paths = "results",
    *,
    dataset: Several | Path = None,
    method: Several = None,
    regime: Several = None,
    pi: Numbers = None,
    metric: Several = None,
    decision: str | None = None,
    selection: Several = None,
    convention: str = "default",
    bootstrap: int = 0,
    baseline: str = "auto",
    versions: Several = "newest",
    prefer: str | Path | None = None,
    published: bool = False,
    papers: Paths = (),
    **numbers: Numbers,
) -> Boards:
    """Build the leaderboards of the finished runs, as `ssmlbench compare` prints them.

    results: one results folder or several.
    dataset, method, regime, pi, selection: only these runs; one value, a list, or `"a,b"`.
    metric: the columns, e.g. `micro_f1`, `macro_f1`, `map`, `hamming`, `one_loss`, `seconds_per_epoch`,
        `peak_memory_mb`. By default the five metrics.
    decision: the rule that turns scores into label sets: `calibrated` by default, `threshold`, `top-k`
        (the default with `published`, as most papers use it).
    convention: `default`, or `released` (labels without a test positive count 0, ties favour the
        model).
    bootstrap: this many draws for 95 % intervals over test rows; 0 for none.
    baseline: the row that others are compared with, paired by seed; `auto` for the best that uses
        labelled rows only, `none` for no comparison.
    versions: of a method's code: `newest`, `all` (older ones as separate rows), or the first digits of
        digests.
    prefer: the results folder that counts where one run has different numbers in two.
    published: show the papers' numbers beside ours, in every layout; without runs, theirs alone.
    papers: folders with further published tables; gives `published`.
    numbers: other regimes' numbers, as pi is that of `semi`: `share=0.5`.
    """
    _check_numbers(numbers)
    further = _paths(papers, "papers")
    published = published or bool(further)
    requested: dict[str, Any] = {"pi": pi, **numbers}
    query = Query(
        datasets=several(dataset, str, "dataset"),
        regimes=several(regime, str, "regime"),
        numbers={name: several(value, float, name) for name, value in requested.items()},
        methods=several(method, str, "method"),
        selections=several(selection, str, "selection"),
        metrics=several(metric, str, "metric") or tuple(METRICS),
        decision=decision or ("top-k" if published else "calibrated"),
        convention=convention,
        draws=bootstrap,
        baseline=baseline,
        versions=several(versions, str, "versions"),
    )
    if further:
        read_published(further)  # a mistake in them is found here, not when the boards are shown
    roots = _paths(results, "results")
    if published and roots == [Path("results")] and not roots[0].is_dir():
        roots = []  # the papers alone
    runs, complaints = read_finished(roots)
    for complaint in complaints:
        warnings.warn(complaint, stacklevel=3)
    runs = merge_runs(runs, usable(prefer) if prefer is not None else None)
    boards = build_boards(runs, query)
    if not published:
        if not boards:
            raise query.unfit(runs)
        for line in query.unmet(runs):
            warnings.warn(line, stacklevel=3)
    return Boards(boards, metric is not None, (query, further) if published else None)


def _check_numbers(numbers: Mapping[str, Any]) -> None:
    known = {option.name for option in NUMBERS}
    for name in numbers:
        if name not in known:
            raise no_such_argument(compare, name, known)


def _paths(given: Paths, name: str) -> list[Path]:
    paths = [given] if isinstance(given, str | Path) else list(given)
    for path in paths:
        if not isinstance(path, str | Path) or not str(path):
            raise UserError(f"{name}={shown(path)}: must be a path, or several")
    return [usable(path) for path in paths]
