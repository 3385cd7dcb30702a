"""The papers' numbers beside ours as one document, in any layout: for `compare --published` and Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ssmlbench.boards.board import Board
from ssmlbench.boards.layout import BOARDS
from ssmlbench.boards.published import filtered, read_published
from ssmlbench.boards.query import Query
from ssmlbench.boards.render.boards import boards_document
from ssmlbench.boards.render.convert import check_names
from ssmlbench.boards.render.document import Document
from ssmlbench.boards.render.names import RowNames
from ssmlbench.boards.render.numbers import NumberStyle
from ssmlbench.boards.render.published_layout import published_layout_document
from ssmlbench.boards.render.side_by_side import side_by_side_document
from ssmlbench.boards.rule_audit import audit_rules
from ssmlbench.boards.side_by_side import side_by_side
from ssmlbench.core.errors import UserError


def published_document(
    boards: Sequence[Board],
    query: Query,
    papers: Sequence[Path],
    layout: str,
    style: NumberStyle,
    names: RowNames,
) -> Document:
    """The papers' numbers that fit the query, our boards beside them, and our other boards below.

    papers: folders of further papers. A UserError where no paper has such numbers.
    """
    values = read_published(papers)
    tables = side_by_side(filtered(values, query), boards)
    if not tables:
        raise UserError(
            "--published: no paper here has such numbers; without --published compare shows ours"
        )
    check_names(boards, names)
    audited = audit_rules(values)
    if layout != BOARDS:
        return published_layout_document(tables, boards, audited, layout, style, names)
    document = side_by_side_document(tables, audited, query.decision, style, names)
    joined = [each.board for each in tables]
    others = [board for board in boards if board not in joined]
    document.add(boards_document(others, style, names))
    return document
