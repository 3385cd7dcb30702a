"""A document as an HTML fragment for notebooks. boards/report writes the page of a report."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ssmlbench.boards.render.document import Document, Entry, Panel, TableSection
from ssmlbench.core.plain_text import printable


def as_html(document: Document) -> str:
    """Return the sections as tables, best of a column in bold, second underlined; every text escaped."""
    return "\n".join(_section(section) for section in document.sections)


def _section(section: TableSection) -> str:
    lines = ["<section>", f"<h4>{_safe(section.title)}</h4>"]
    if section.warning:
        lines.append(f"<p><strong>{_safe(section.warning)}</strong></p>")
    lines += [_table(panel) for panel in section.panels]
    if section.notes:
        notes = "".join(f"<li>{_safe(note)}</li>" for note in section.notes)
        lines.append(f"<ul>{notes}</ul>")
    return "\n".join([*lines, "</section>"])


def _table(panel: Panel) -> str:
    spans = "".join(
        f'<th scope="colgroup" colspan="{count}">{_safe(name)}</th>' for name, count in panel.spans
    )
    above = f"<tr>{spans}</tr>" if spans else ""
    head = "".join(f'<th scope="col">{_safe(header)}</th>' for header in panel.headers)
    body = "\n".join(f"<tr>{_row(row, panel)}</tr>" for row in panel.rows)
    return f"<table>\n<thead>{above}<tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _row(row: Sequence[Entry], panel: Panel) -> str:
    cells = []
    for i, entry in enumerate(row):
        text = _safe(entry.text)
        if entry.place == 1 and len(panel.rows) > 1:
            text = f"<b>{text}</b>"
        elif entry.place == 2:
            text = f"<u>{text}</u>"
        align = "left" if i < panel.left else "right"
        cells.append(f'<td style="text-align: {align}">{text}</td>')
    return "".join(cells)


def _safe(text: str) -> str:
    """The text as HTML, without characters that control a terminal or turn the text around."""
    return escape(printable(text))
