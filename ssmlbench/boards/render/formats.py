"""A document as a Rich table, Markdown, CSV or JSON; LaTeX and HTML have modules of their own."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from ssmlbench.boards.render.document import Document, Panel
from ssmlbench.boards.render.html import as_html
from ssmlbench.boards.render.latex import as_latex
from ssmlbench.core.errors import UserError


class RichDocument:
    """The document as Rich tables, laid out for the width of the console."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for section in self.document.sections:
            for panel in section.panels:
                yield _rich_table(section.title, panel, _width(panel) > options.max_width)
            if not section.panels:
                yield Text(section.title, style="bold")
            if section.warning:
                yield Text(section.warning, style="yellow")
            yield Text("\n".join(section.notes) + "\n", style="dim")


def _width(panel: Panel) -> int:
    """Return the table's width with every cell on one line."""
    rows = [panel.headers, *([entry.text for entry in row] for row in panel.rows)]
    return sum(3 + max(map(cell_len, column)) for column in zip(*rows, strict=True)) + 1


def _rich_table(title: str, panel: Panel, narrow: bool) -> Table:
    """Return the table; `narrow`: no frame, headers broken at words, the spread below the mean."""
    table = Table(
        title=Text(title),
        title_style="bold",
        title_justify="left",
        box=None if narrow else box.HEAVY_HEAD,
        pad_edge=not narrow,
    )
    for i, header in enumerate(panel.headers):
        words = header.replace(" ", "\n") if narrow else header
        is_text = i < panel.left
        table.add_column(Text(words), justify="left" if is_text else "right", no_wrap=not is_text)
    for row in panel.rows:
        cells = []
        for entry in row:
            text = entry.text.replace(" ± ", "\n±").replace(" [", "\n[") if narrow else entry.text
            best = entry.place == 1 and len(panel.rows) > 1
            cells.append(Text(text, style="bold" if best else ""))
        table.add_row(*cells)
    return table


def as_markdown(document: Document) -> str:
    """Return the sections as Markdown tables with their notes."""
    lines = []
    for section in document.sections:
        lines += [f"### {section.title}", ""]
        if section.warning:
            lines += [section.warning, ""]
        for panel in section.panels:
            numbers = len(panel.headers) - panel.left
            lines.append("| " + " | ".join(map(_markdown_cell, panel.headers)) + " |")
            lines.append("|" + " --- |" * panel.left + " ---: |" * numbers)
            for row in panel.rows:
                cells = [
                    f"**{_markdown_cell(entry.text)}**"
                    if entry.place == 1
                    else _markdown_cell(entry.text)
                    for entry in row
                ]
                lines.append("| " + " | ".join(cells) + " |")
            lines.append("")
        lines += [*section.notes, ""]
    return "\n".join(lines)


def _markdown_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def as_csv(document: Document) -> str:
    """Return the records as CSV; a document with two kinds of records is refused."""
    if document.extra_records:
        raise UserError(
            f"--format csv holds one table, and this output also has {', '.join(document.extra_records)}; "
            "use --format json, or narrow the request (--dataset, no --stats)"
        )
    out = io.StringIO()
    fields = list(dict.fromkeys(key for record in document.records for key in record))
    writer = csv.DictWriter(out, fieldnames=fields or ["dataset"])
    writer.writeheader()
    writer.writerows(document.records)
    return out.getvalue()


def as_json(document: Document) -> str:
    """Return the records of all kinds, and the sections' titles and notes, as JSON."""
    boards = [
        {"board": section.title, "warning": section.warning, "notes": list(section.notes)}
        for section in document.sections
    ]
    content = {"boards": boards, document.records_name: document.records, **document.extra_records}
    return json.dumps(_finite(content), indent=1, ensure_ascii=False)


def _finite(value: Any) -> Any:
    """Replace NaN and infinity by None: JSON has neither."""
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


TEXT_FORMATS: dict[str, Callable[[Document], str]] = {
    "markdown": as_markdown,
    "latex": as_latex,
    "html": as_html,
    "csv": as_csv,
    "json": as_json,
}


def print_document(document: Document, style: str, console: Console) -> None:
    """Print the document as `table` (for a terminal) or in one of the text formats."""
    if style == "table":
        console.print(RichDocument(document))
    else:
        console.out(TEXT_FORMATS[style](document), highlight=False)
