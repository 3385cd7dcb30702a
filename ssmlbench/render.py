"""Boards as text: a Rich table, Markdown, LaTeX, CSV or JSON. No number is computed here."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from ssmlbench.leaderboard import COSTS, Board, BoardRow, Cell
from ssmlbench.metrics import Metric

DASH = "–"
RULES = {
    "calibrated": "label sets by per-label thresholds that match the labelled prior (calibrated)",
    "threshold": "label sets by score > 0.5 (threshold)",
    "top-k": "‡ label sets by the true number of labels of each test row (top-k): an oracle rule",
}


def title(board: Board) -> str:
    level = {"semi": "π", "partial-positive": "share"}.get(board.regime)
    where = f" {level} = {board.levels[0]}" if level and len(board.levels) == 1 else ""
    return f"{board.dataset} · {board.regime}{where}"


def row_name(board: Board, row: BoardRow) -> str:
    return f"{row.name} †" if board.selection == "oracle" else row.name


def column_title(board: Board, metric: Metric, level: str) -> str:
    arrow = "↑" if metric.higher_is_better else "↓"
    mark = "‡" if board.decision == "top-k" and metric.uses_decision else ""
    name = f"{metric.title}{mark} {arrow}"
    return (
        f"{name} π={level}"
        if len(board.levels) > 1 and board.regime == "semi"
        else (f"{name} {level}" if len(board.levels) > 1 else name)
    )


def footnotes(board: Board) -> list[str]:
    """What a reader must know to read the numbers."""
    notes = []
    if any(metric.uses_decision for metric in board.metrics):
        notes.append(RULES[board.decision] + ".")
    if board.selection == "oracle":
        notes.append("† the epoch was selected on the test set (oracle).")
    if board.selection == "val":
        notes.append("The epoch was selected on held-out labelled rows (val).")
    if board.convention == "released":
        notes.append(
            "Released conventions: labels without a test positive count 0, One loss ties favour the model."
        )
    setting = board.setting
    notes.append(
        f"{_encoder_text(setting)}, {setting['epochs']} epochs ({setting['warmup_epochs']} warm-up), "
        f"batch {setting['labelled_batch_size']} + {setting['batch_size']}, lr {setting['lr']:g}, "
        f"{setting['split']} split; mean ± std over seeds; rows by average rank."
    )
    if board.missing:
        more = f" and {len(board.missing) - 6} more" if len(board.missing) > 6 else ""
        notes.append(f"Missing: {'; '.join(board.missing[:6])}{more}.")
    return notes


def _encoder_text(setting: dict[str, Any]) -> str:
    """The encoder with what was chosen about it, e.g. `resnet50 (frozen, 224 px)`."""
    said = ["frozen"] if setting["freeze"] else []
    said += ["from scratch"] if setting["weights"].partition("@")[0] == "none" else []
    said += [f"{setting['image_size']} px"] if setting["image_size"] else []
    said += ["not normalised"] if setting["normalise"] is False else []
    said += [f"{setting['max_tokens']} tokens"] if setting["max_tokens"] else []
    said += ["padding pooled"] if setting["pooling"] == "all" else []
    said += ["features unscaled"] if setting["scaling"] == "none" else []
    return setting["backbone"] + (f" ({', '.join(said)})" if said else "")


def _number(value: float, metric: Metric) -> str:
    return f"{value:.2f}" if metric in COSTS else f"{value:.4f}"


def cell_text(cell: Cell | None, metric: Metric, plus_minus: str = " ± ") -> str:
    if cell is None:
        return DASH
    if cell.std is None:
        return _number(cell.mean, metric)
    return f"{_number(cell.mean, metric)}{plus_minus}{_number(cell.std, metric)}"


def seeds_text(row: BoardRow) -> str:
    counts = sorted({len(cell.seeds) for cell in row.cells.values()})
    return "–".join(map(str, counts[:1] + counts[-1:] if len(counts) > 1 else counts))


def _panels(board: Board) -> list[list[tuple[Metric, str]]]:
    """All metrics in one table for one level; a table a metric, columns by level, for several."""
    if len(board.levels) == 1:
        return [board.columns]
    return [[(metric, level) for level in board.levels] for metric in board.metrics]


def _grid(
    board: Board,
    columns: Sequence[tuple[Metric, str]],
    style: Callable[[str, Cell | None], str],
    plus_minus: str = " ± ",
) -> list[list[str]]:
    body = []
    for row in board.rows:
        cells = [
            style(cell_text(row.cells.get((m.key, lv)), m, plus_minus), row.cells.get((m.key, lv)))
            for m, lv in columns
        ]
        body.append([row_name(board, row), seeds_text(row), *cells, f"{row.rank:.2f}"])
    return body


def _headers(board: Board, columns: Sequence[tuple[Metric, str]]) -> list[str]:
    return ["method", "seeds", *(column_title(board, m, lv) for m, lv in columns), "rank"]


# ---------------------------------------------------------------- formats


NARROW = 110
"""Below this many columns a table puts the spread under the mean."""


class as_rich:
    """The boards as Rich tables, laid out for the width there is."""

    def __init__(self, boards: Sequence[Board]):
        self.boards = boards

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        narrow = options.max_width < NARROW
        for board in self.boards:
            for columns in _panels(board):
                yield _rich_table(board, columns, narrow)
            if board.apart:
                yield Text(f"Shown apart, not comparable: {board.apart}.", style="yellow")
            yield Text("\n".join(footnotes(board)) + "\n", style="dim")


def _rich_table(board: Board, columns: Sequence[tuple[Metric, str]], narrow: bool) -> Table:
    table = Table(
        title=title(board),
        title_style="bold",
        title_justify="left",
        box=None if narrow else box.HEAVY_HEAD,
        pad_edge=not narrow,
    )
    for i, header in enumerate(_headers(board, columns)):
        words = header.replace(" ", "\n") if narrow else header
        table.add_column(words, justify="left" if i == 0 else "right", no_wrap=i != 0)
    plus_minus = "\n±" if narrow else " ± "
    for row in board.rows:
        cells = []
        for metric, level in columns:
            cell = row.cells.get((metric.key, level))
            best = cell is not None and cell.place == 1 and len(board.rows) > 1
            cells.append(Text(cell_text(cell, metric, plus_minus), style="bold" if best else ""))
        table.add_row(row_name(board, row), seeds_text(row), *cells, f"{row.rank:.2f}")
    return table


def as_markdown(boards: Sequence[Board]) -> str:
    def style(text: str, cell: Cell | None) -> str:
        return f"**{text}**" if cell and cell.place == 1 else text

    lines = []
    for board in boards:
        lines += [f"### {title(board)}", ""]
        if board.apart:
            lines += [f"Shown apart, not comparable: {board.apart}.", ""]
        for columns in _panels(board):
            headers = _headers(board, columns)
            lines.append("| " + " | ".join(headers) + " |")
            lines.append("| --- |" + " ---: |" * (len(headers) - 1))
            for cells in _grid(board, columns, style):
                lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
            lines.append("")
        lines += [*footnotes(board), ""]
    return "\n".join(lines)


LATEX_SPECIAL = {
    "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}",
    "π": r"$\pi$", "±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "†": r"$\dagger$",
    "‡": r"$\ddagger$", "·": r"$\cdot$", "–": "--", "—": "---", "η": r"$\eta$", ">": r"$>$",
    "<": r"$<$",
}  # fmt: skip


def latex_escape(text: str) -> str:
    return "".join(LATEX_SPECIAL.get(character, character) for character in text)


def as_latex(boards: Sequence[Board]) -> str:
    """booktabs tables, best bold, second underlined; needs \\usepackage{booktabs}."""

    def style(text: str, cell: Cell | None) -> str:
        text = latex_escape(text)
        if cell and cell.place == 1:
            return rf"\textbf{{{text}}}"
        return rf"\underline{{{text}}}" if cell and cell.place == 2 else text

    lines = ["% needs \\usepackage{booktabs}"]
    for board in boards:
        for columns in _panels(board):
            headers = [latex_escape(h) for h in _headers(board, columns)]
            notes = [f"Shown apart: {board.apart}."] if board.apart else []
            caption = " ".join([f"{title(board)}.", *notes, *footnotes(board)])
            lines += [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{latex_escape(caption)}}}",
                rf"\begin{{tabular}}{{l{'r' * (len(headers) - 1)}}}",
                r"\toprule",
                " & ".join(headers) + r" \\",
                r"\midrule",
            ]
            for name, seeds, *cells in _grid(board, columns, style):
                lines.append(" & ".join([latex_escape(name), latex_escape(seeds), *cells]) + r" \\")
            lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
    return "\n".join(lines)


def records(boards: Sequence[Board]) -> list[dict[str, object]]:
    """One flat record a cell, for CSV and JSON."""
    return [
        {
            "dataset": board.dataset,
            "regime": board.regime,
            "level": level,
            "method": row.name,
            "metric": metric.key,
            "mean": row.cells[metric.key, level].mean,
            "std": row.cells[metric.key, level].std,
            "seeds": len(row.cells[metric.key, level].seeds),
            "place": row.cells[metric.key, level].place,
            "rank": row.rank,
            "decision": board.decision if metric.uses_decision else "",
            "selection": board.selection,
            "convention": board.convention,
            "apart": board.apart,
            **{k: v for k, v in board.setting.items() if k != "selection"},
        }
        for board in boards
        for row in board.rows
        for metric, level in board.columns
        if (metric.key, level) in row.cells
    ]


def as_csv(boards: Sequence[Board]) -> str:
    rows = records(boards)
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else ["dataset"])
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def as_json(boards: Sequence[Board]) -> str:
    notes = [
        {"board": title(board), "apart": board.apart, "notes": footnotes(board)} for board in boards
    ]
    return json.dumps({"boards": notes, "cells": records(boards)}, indent=1, ensure_ascii=False)


FORMATS: dict[str, Callable[[Sequence[Board]], str]] = {
    "markdown": as_markdown,
    "latex": as_latex,
    "csv": as_csv,
    "json": as_json,
}


def print_boards(boards: Sequence[Board], style: str, console: Console) -> None:
    if style == "table":
        console.print(as_rich(boards))
    else:
        console.out(FORMATS[style](boards), highlight=False)
