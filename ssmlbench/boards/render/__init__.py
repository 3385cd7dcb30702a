"""The output of `compare` as a Rich table, Markdown, LaTeX, HTML, CSV or JSON."""

from ssmlbench.boards.render.boards import (
    boards_document,
    column_title,
    records,
    row_name,
    seeds_text,
    title,
)
from ssmlbench.boards.render.convert import (
    boards_to_csv,
    boards_to_html,
    boards_to_json,
    boards_to_latex,
    boards_to_markdown,
    boards_to_pandas,
    check_names,
    table_document,
)
from ssmlbench.boards.render.document import DASH, Document, Entry, Panel, TableSection
from ssmlbench.boards.render.formats import TEXT_FORMATS, RichDocument, as_markdown, print_document
from ssmlbench.boards.render.latex_text import latex_escape
from ssmlbench.boards.render.layout import layout_document
from ssmlbench.boards.render.notes import footnotes

__all__ = [
    "DASH",
    "TEXT_FORMATS",
    "Document",
    "Entry",
    "Panel",
    "RichDocument",
    "TableSection",
    "as_markdown",
    "boards_document",
    "boards_to_csv",
    "boards_to_html",
    "boards_to_json",
    "boards_to_latex",
    "boards_to_markdown",
    "boards_to_pandas",
    "check_names",
    "column_title",
    "footnotes",
    "latex_escape",
    "layout_document",
    "print_document",
    "records",
    "row_name",
    "seeds_text",
    "table_document",
    "title",
]
