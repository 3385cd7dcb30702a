"""Everything `compare` shows, as text: a Rich table, Markdown, LaTeX, CSV or JSON."""

from ssmlbench.boards.render.boards import (
    board_page,
    cell_text,
    column_title,
    footnotes,
    records,
    row_name,
    seeds_text,
    title,
)
from ssmlbench.boards.render.document import DASH, Entry, Page, Panel, Section
from ssmlbench.boards.render.formats import FORMATS, as_markdown, as_rich, print_page
from ssmlbench.boards.render.latex import latex_escape

__all__ = [
    "DASH",
    "FORMATS",
    "Entry",
    "Page",
    "Panel",
    "Section",
    "as_markdown",
    "as_rich",
    "board_page",
    "cell_text",
    "column_title",
    "footnotes",
    "latex_escape",
    "print_page",
    "records",
    "row_name",
    "seeds_text",
    "title",
]
