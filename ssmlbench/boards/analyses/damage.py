"""Damaged files that an analysis meets: none is left out without a word."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ssmlbench.boards.query import Query
from ssmlbench.core.counts import and_more
from ssmlbench.core.errors import UserError

if TYPE_CHECKING:
    from ssmlbench.boards.analyses.contract import Analysis, Findings, RunCell

_met: ContextVar[dict[str, None] | None] = ContextVar("met", default=None)


class NothingSound(UserError):
    """An analysis found nothing, and met damaged files."""


def note_damage(text: str) -> None:
    """Note what is wrong with a file that an analysis has read."""
    if (met := _met.get()) is not None:
        met[text] = None


def find_with(
    analysis: Analysis, cells: Sequence[RunCell], query: Query, options: Mapping[str, Any]
) -> list[Findings]:
    """What an analysis finds.

    Damaged files that no table of it names, as all runs of a cell have some, are named below its first
    table; or by its error, if it finds nothing.
    """
    met: dict[str, None] = {}
    before = _met.set(met)
    try:
        found = analysis.find(cells, query, options)
    except UserError as error:
        if untold := _untold(met, str(error)):
            raise NothingSound(f"{untold}; {error}") from None
        raise
    finally:
        _met.reset(before)
    if untold := _untold(met, " ".join(note for one in found for note in one.table.notes)):
        first = found[0]
        notes = [*first.table.notes, f"left out: {untold}"]
        found[0] = dataclasses.replace(first, table=dataclasses.replace(first.table, notes=notes))
    return found


def _untold(met: Mapping[str, None], told: str) -> str:
    texts = [text for text in met if text not in told]
    return f"{texts[0]}{and_more(texts, 1)}" if texts else ""
