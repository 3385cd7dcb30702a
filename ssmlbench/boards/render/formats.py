"""A page as a Rich table, Markdown, CSV or JSON; LaTeX has a module of its own."""

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

from ssmlbench.boards.render.document import Page, Panel
from ssmlbench.boards.render.latex import as_latex
from ssmlbench.core.errors import UserError


class as_rich:
    """The page as Rich tables, laid out for the width there is."""

    def __init__(self, page: Page):
        self.page = page

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for section in self.page.sections:
            for panel in section.panels:
                yield _rich_table(section.title, panel, _width(panel) > options.max_width)
            if not section.panels:
                yield Text(section.title, style="bold")
            if section.warning:
                yield Text(section.warning, style="yellow")
            yield Text("\n".join(section.notes) + "\n", style="dim")


def _width(panel: Panel) -> int:
    """Of the table with everything on one line."""
    rows = [panel.headers, *([entry.text for entry in row] for row in panel.rows)]
    return sum(3 + max(map(cell_len, column)) for column in zip(*rows, strict=True)) + 1


def _rich_table(title: str, panel: Panel, narrow: bool) -> Table:
    """Narrow: no frame, words of a header below each other, the spread under the mean."""
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


def as_markdown(page: Page) -> str:
    lines = []
    for section in page.sections:
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


def as_csv(page: Page) -> str:
    if page.more:
        raise UserError(
            f"--format csv holds one table, and here is also {', '.join(page.more)}; "
            "take --format json, or ask for less (--dataset, no --stats)"
        )
    out = io.StringIO()
    fields = list(dict.fromkeys(key for record in page.records for key in record))
    writer = csv.DictWriter(out, fieldnames=fields or ["dataset"])
    writer.writeheader()
    writer.writerows(page.records)
    return out.getvalue()


def as_json(page: Page) -> str:
    boards = [
        {"board": section.title, "apart": section.warning, "notes": list(section.notes)}
        for section in page.sections
    ]
    content = {"boards": boards, page.records_name: page.records, **page.more}
    return json.dumps(_finite(content), indent=1, ensure_ascii=False)


def _finite(value: Any) -> Any:
    """JSON has no NaN: a number that is none becomes null."""
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


FORMATS: dict[str, Callable[[Page], str]] = {
    "markdown": as_markdown,
    "latex": as_latex,
    "csv": as_csv,
    "json": as_json,
}


def print_page(page: Page, style: str, console: Console) -> None:
    if style == "table":
        console.print(as_rich(page))
    else:
        console.out(FORMATS[style](page), highlight=False)
