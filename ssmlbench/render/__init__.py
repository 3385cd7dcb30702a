"""Everything `compare` shows, as text: a Rich table, Markdown, LaTeX, CSV or JSON."""

from ssmlbench.render.boards import (
    board_page,
    cell_text,
    column_title,
    footnotes,
    records,
    row_name,
    seeds_text,
    title,
)
from ssmlbench.render.formats import FORMATS, as_markdown, as_rich, print_page
from ssmlbench.render.latex import latex_escape
from ssmlbench.render.page import DASH, Entry, Page, Panel, Section

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
