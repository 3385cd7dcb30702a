"""Boards as a document in one of the layouts, or as a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ssmlbench.boards.board import Board
from ssmlbench.boards.layout import BOARDS, LAYOUTS
from ssmlbench.boards.render.boards import boards_document, records
from ssmlbench.boards.render.document import Document
from ssmlbench.boards.render.layout import layout_document
from ssmlbench.boards.render.names import RowNames
from ssmlbench.boards.render.numbers import PLAIN, NumberStyle
from ssmlbench.core.errors import UserError
from ssmlbench.core.suggestions import did_you_mean, one_of

if TYPE_CHECKING:
    import pandas as pd


def table_document(
    boards: Sequence[Board],
    layout: str,
    style: NumberStyle = PLAIN,
    names: RowNames | None = None,
) -> Document:
    """The boards in one of the layouts, written as `style` and `names` say."""
    one_of(layout, LAYOUTS, "--layout")
    if names:
        check_names(boards, names)
    if layout == BOARDS:
        return boards_document(boards, style, names)
    return layout_document(boards, layout, style, names)


def check_names(boards: Sequence[Board], names: RowNames) -> None:
    """Refuse to rename a method that no board has, and names that do not tell rows apart."""
    rows = {
        word for board in boards for row in board.rows for word in (row.name, row.name.split()[0])
    }
    for name in names.renamed:
        if name not in rows:
            raise UserError(f"--rename {name}: no such method here.{did_you_mean(name, rows)}")
        shown = names.renamed[name]
        if not isinstance(shown, str) or not shown.strip():
            raise UserError(f"--rename {name}={shown}: expected a text that is not empty")
    called: dict[str, str] = {}
    for row in sorted({row.name for board in boards for row in board.rows}):
        shown = names.of(row)
        if names.renamed and shown in called:
            raise UserError(f"--rename: {called[shown]} and {row} would both be called {shown}")
        called[shown] = row


def boards_to_pandas(boards: Sequence[Board]) -> pd.DataFrame:
    """Return one row for each cell: data set, regime, level, method, metric, mean, std, settings.

    `level` is a number (π or the share), NaN for a regime without one; `std` is NaN for one seed.
    A wide table is one call away: `pivot(index="method", columns=["metric", "level"], values="mean")`.
    """
    import pandas as pd

    frame = pd.DataFrame.from_records(records(boards), columns=_columns(boards))
    for name in ("level", "mean", "std", "rank"):
        frame[name] = pd.to_numeric(frame[name], errors="coerce").astype(float)
    return frame


def _columns(boards: Sequence[Board]) -> list[str]:
    """The columns of all records in order; those every record has, where there is no board."""
    found = dict.fromkeys(key for record in records(boards) for key in record)
    always = ("dataset", "regime", "level", "method", "metric", "mean", "std", "seeds", "rank")
    return list(found) or list(always)
