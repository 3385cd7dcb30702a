"""The output of `compare` as a Rich table, Markdown, LaTeX, HTML, CSV or JSON."""

from ssmlbench.boards.render.boards import boards_document, title
from ssmlbench.boards.render.convert import boards_to_pandas, table_document
from ssmlbench.boards.render.document import Document, Entry
from ssmlbench.boards.render.formats import TEXT_FORMATS, RichDocument, as_markdown, print_document
from ssmlbench.boards.render.latex_text import latex_escape
from ssmlbench.boards.render.layout import layout_document
from ssmlbench.boards.render.notes import footnotes

__all__ = [
    "TEXT_FORMATS",
    "Document",
    "Entry",
    "RichDocument",
    "as_markdown",
    "boards_document",
    "boards_to_pandas",
    "footnotes",
    "latex_escape",
    "layout_document",
    "print_document",
    "table_document",
    "title",
]
