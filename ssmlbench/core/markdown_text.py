"""Text of unknown origin (names, values, docstrings) made safe inside a Markdown page."""

from __future__ import annotations

import re

from ssmlbench.core.plain_text import one_line, printable

TAG = re.compile(r"<(?=[A-Za-z/!?])")
"""The start of HTML or of a link in angle brackets: `a < b` is none."""


def markdown_text(text: str) -> str:
    """The text on one line, as text: HTML in it is shown, and it has no link and no control character."""
    return TAG.sub("&lt;", printable(one_line(text))).replace("](", "]\\(")


def markdown_cell(text: str) -> str:
    """The same inside one cell of a table."""
    return " ".join(markdown_text(text).split()).replace("|", "\\|")


def markdown_code(text: str) -> str:
    """The text as code inside one cell of a table, in which HTML is shown as it is."""
    return (
        f"`{printable(one_line(text))}`".replace("|", "\\|")
        if "`" not in text
        else markdown_cell(text)
    )
