"""A document as a Rich table, Markdown, CSV or JSON; LaTeX and HTML have modules of their own."""

from __future__ import annotations

import io
import json
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import ConsoleOptions, RenderResult
from rich.control import strip_control_codes
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ssmlbench.boards.render.document import Document, Panel, TableSection
from ssmlbench.boards.render.html import as_html
from ssmlbench.boards.render.latex import LatexStyle, as_latex
from ssmlbench.core.console import Console
from ssmlbench.core.csv_cells import CsvWriter
from ssmlbench.core.errors import UserError
from ssmlbench.core.markdown_text import markdown_cell, markdown_text


class RichDocument:
    """The document as Rich tables, laid out for the width of the console."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for section in self.document.sections:
            for panel in section.panels:
                yield Text(_heading(section, panel), style="bold")
                for part in _fitting(panel, options.max_width):
                    fits = _width(part) <= options.max_width
                    yield from _framed(part, console) if fits else [_unframed(part)]
            if not section.panels:
                yield Text(section.title, style="bold")
            if section.warning:
                yield Text(section.warning, style="yellow")
            yield Text("\n".join(section.notes) + "\n", style="dim")


def _heading(section: TableSection, panel: Panel) -> str:
    """The section's title, with the table's own title if there are several tables."""
    if len(section.panels) < 2 or not panel.title or panel.title in section.title:
        return section.title
    return f"{section.title} · {panel.title}"


def _width(panel: Panel) -> int:
    """Return the table's width with every cell on one line, and every heading of a group on another."""
    rows = [*_header_lines(panel), *([entry.text for entry in row] for row in panel.rows)]
    return sum(3 + max(map(cell_len, column)) for column in zip(*rows, strict=True)) + 1


def _header_lines(panel: Panel) -> list[Sequence[str]]:
    return [panel.groups, panel.headers] if panel.groups else [panel.headers]


def _narrow_widths(panel: Panel) -> list[int]:
    """The width of each column with headers broken at words and spreads below their means."""
    rows = [panel.flat_headers, *([entry.text for entry in row] for row in panel.rows)]
    return [
        max(cell_len(part) for text in column for part in _broken(text).split("\n"))
        for column in zip(*([_broken_header(t) for t in rows[0]], *rows[1:]), strict=True)
    ]


def _broken(text: str) -> str:
    return text.replace(" ± ", "\n±").replace(" [", "\n[")


def _broken_header(text: str) -> str:
    return text.replace(" ", "\n")


def _folded(header: str, width: int) -> str:
    """The header of a text column, which may be wide, in as few lines as its width takes."""
    return textwrap.fill(header, width, break_long_words=False, break_on_hyphens=False)


def _fitting(panel: Panel, width: int) -> list[Panel]:
    """The panel in as many parts, side by side columns together, as fit the width when narrow."""
    widths = _narrow_widths(panel)
    names = sum(2 + w for w in widths[: panel.left])
    if _width(panel) <= width or names + sum(2 + w for w in widths[panel.left :]) <= width:
        return [panel]
    parts: list[list[int]] = [[]]
    room = width - names
    for i in range(panel.left, len(widths)):
        if parts[-1] and room < 2 + widths[i]:
            parts.append([])
            room = width - names
        parts[-1].append(i)
        room -= 2 + widths[i]
    return [panel.part(columns) for columns in parts]


def _framed(panel: Panel, console: Console) -> Iterator[Segment]:
    """Yield a table with a frame and every cell on one line.

    It looks like Rich's own Table, which is too slow for thousands of cells.
    """
    frame = box.HEAVY_HEAD.substitute(console.options, safe=True)
    bold = console.get_style("bold")
    headers = [list(map(strip_control_codes, line)) for line in _header_lines(panel)]
    rows = [[strip_control_codes(entry.text) for entry in row] for row in panel.rows]
    widths = [max(map(cell_len, column)) for column in zip(*headers, *rows, strict=True)]
    spaces = [width + 2 for width in widths]

    def line(
        cells: Sequence[str], edges: Sequence[str], bolds: Sequence[bool]
    ) -> Iterator[Segment]:
        left, *between = edges[0], *[edges[1]] * (len(cells) - 1), f"{edges[2]}\n"
        text = left
        for i, cell in enumerate(cells):
            room = " " * (widths[i] - cell_len(cell))
            padded = f" {cell}{room} " if i < panel.left else f" {room}{cell} "
            if bolds[i]:
                yield Segment(text)
                yield Segment(padded, bold)
                text = between[i]
            else:
                text += padded + between[i]
        yield Segment(text)

    yield Segment(f"{frame.get_top(spaces)}\n")
    for header in headers:
        edges = (frame.head_left, frame.head_vertical, frame.head_right)
        yield from line(header, edges, [True] * len(header))
    yield Segment(f"{frame.get_row(spaces, 'head')}\n")
    for i, row in enumerate(rows):
        if i and i in panel.breaks:
            yield Segment(f"{frame.get_row(spaces, 'row')}\n")
        bolds = [entry.place == 1 and len(rows) > 1 for entry in panel.rows[i]]
        yield from line(row, (frame.mid_left, frame.mid_vertical, frame.mid_right), bolds)
    yield Segment(f"{frame.get_bottom(spaces)}\n")


def _unframed(panel: Panel) -> Table:
    """Return the table without a frame, headers broken at words, spreads below their means."""
    table = Table(box=None, pad_edge=False)
    widths = _narrow_widths(panel)
    for i, header in enumerate(panel.flat_headers):
        is_text = i < panel.left
        shown = _folded(header, widths[i]) if is_text else _broken_header(header)
        table.add_column(Text(shown), justify="left" if is_text else "right", no_wrap=not is_text)
    for i, row in enumerate(panel.rows):
        if i in panel.breaks:
            table.add_section()
        best = [entry.place == 1 and len(panel.rows) > 1 for entry in row]
        cells = (_broken(entry.text) for entry in row)
        table.add_row(*(Text(t, style="bold" * b) for t, b in zip(cells, best, strict=True)))
    return table


def as_markdown(document: Document) -> str:
    """Return the sections as Markdown tables with their notes."""
    lines = []
    for section in document.sections:
        lines += [f"### {markdown_text(section.title)}", ""]
        if section.warning:
            lines += [markdown_text(section.warning), ""]
        for panel in section.panels:
            numbers = len(panel.headers) - panel.left
            lines.append("| " + " | ".join(map(markdown_cell, panel.flat_headers)) + " |")
            lines.append("|" + " --- |" * panel.left + " ---: |" * numbers)
            for row in panel.rows:
                cells = [
                    f"**{markdown_cell(entry.text)}**"
                    if entry.place == 1
                    else markdown_cell(entry.text)
                    for entry in row
                ]
                lines.append("| " + " | ".join(cells) + " |")
            lines.append("")
        lines += [*map(markdown_text, section.notes), ""]
    return "\n".join(lines)


def as_csv(document: Document) -> str:
    """Return the records as CSV; a document with two kinds of records is refused."""
    if document.extra_records:
        raise UserError(
            f"--format csv holds one table, and this output also has {', '.join(document.extra_records)}; "
            "use --format json, or narrow the request (--dataset, no --stats)"
        )
    out = io.StringIO()
    fields = list(dict.fromkeys(key for record in document.records for key in record))
    CsvWriter(out, "\r\n").records(document.records, fields or ["dataset"])
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


def print_document(
    document: Document, style: str, console: Console, latex: LatexStyle | None = None
) -> None:
    """Print the document as `table` (for a terminal) or in one of the text formats."""
    if style == "table":
        console.print(RichDocument(document))
    elif style == "latex":
        console.out(as_latex(document, latex), highlight=False)
    else:
        console.out(TEXT_FORMATS[style](document), highlight=False)
