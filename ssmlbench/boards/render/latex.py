r"""A document as LaTeX: booktabs tables, best bold, second underlined, numbers aligned.

pdflatex compiles the text as it is, and a paper can \input it. It is ASCII, whatever a method is called. A
table that is wider than a column of a two-column page is a `table*`; one that is wider than its place
is scaled down to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ssmlbench.boards.render.document import Document, Panel, TableSection
from ssmlbench.boards.render.latex_columns import (
    ALIGNMENTS,
    PLAIN_ALIGNMENT,
    SIUNITX,
    LatexColumn,
    latex_columns,
)
from ssmlbench.boards.render.latex_text import latex_escape
from ssmlbench.boards.render.slugs import slugs
from ssmlbench.core.errors import UserError
from ssmlbench.core.suggestions import one_of

HEAD = r"""% `pdflatex` compiles this file as it is; a paper can \input it: \usepackage{PACKAGES}.
\expandafter\ifx\csname @classoptionslist\endcsname\relax
  \documentclass{article}
  \usepackage[margin=1cm,landscape]{geometry}
  \usepackage{PACKAGES}
  \begin{document}
  \def\afterboard{\clearpage}
  \def\afterboards{\end{document}}
\else
  \def\afterboard{}
  \def\afterboards{}
\fi
\ifx\boardbox\undefined\newsavebox{\boardbox}\fi
% no wider than its place
\long\def\fitboard#1{\sbox{\boardbox}{#1}%
  \ifdim\wd\boardbox>\linewidth\resizebox{\linewidth}{!}{\usebox{\boardbox}}\else\usebox{\boardbox}\fi}
"""
TAIL = "\\afterboards\n"
COLUMN_POINTS = 230.0
"""A little less than the width of a column in the usual two-column styles."""
LETTER_POINTS, GAP_POINTS = 4.4, 9.0
"""The width of a character in footnotesize, and the space between columns."""


@dataclass(frozen=True)
class LatexStyle:
    r"""The style of the LaTeX tables of a paper.

    align: `plain`, or `siunitx` for S columns. caption: instead of the title. label: of `\label`, as it is.
    """

    align: str = PLAIN_ALIGNMENT
    caption: str = ""
    label: str = ""

    def __post_init__(self) -> None:
        one_of(self.align, ALIGNMENTS, "--align")
        if self.label and not re.fullmatch(r"[\w:./+-]+", self.label, re.ASCII):
            raise UserError(
                f"--label {self.label}: expected letters, digits and : . / + - _, e.g. tab:main"
            )


def as_latex(document: Document, style: LatexStyle | None = None) -> str:
    r"""Return the document for pdflatex or \input."""
    style = style or LatexStyle()
    panels = [(section, panel) for section in document.sections for panel in section.panels]
    labels = _labels(panels, style)
    alone = len(document.sections) == 1
    tables = [
        _table(section, panel, label, style, alone)
        for (section, panel), label in zip(panels, labels, strict=True)
    ]
    packages = ["booktabs", "graphicx", *([SIUNITX] if style.align == SIUNITX else [])]
    return "\n".join([HEAD.replace("PACKAGES", ",".join(packages)), *tables, TAIL])


def _labels(panels: Sequence[tuple[TableSection, Panel]], style: LatexStyle) -> list[str]:
    """The typed label, then `label-2`, …; by default what the tables show."""
    if style.label:
        return [style.label + (f"-{i}" if i > 1 else "") for i in range(1, len(panels) + 1)]
    titles = (
        f"{section.key or section.title}{_shown(section, panel)}" for section, panel in panels
    )
    return [f"tab:{slug}" for slug in slugs(titles)]


def _table(section: TableSection, panel: Panel, label: str, style: LatexStyle, alone: bool) -> str:
    columns = latex_columns(panel, style.align)
    environment = "table*" if _points(panel, columns) > COLUMN_POINTS else "table"
    # a typed caption is that of a single table; of several, each says what it shows
    title = f"{style.caption} ({section.title})" if style.caption else section.title
    title = style.caption if style.caption and alone else title
    setup = [r"\sisetup{detect-weight,retain-explicit-plus}"] if style.align == SIUNITX else []
    lines = [
        rf"\begin{{{environment}}}[tbp]",
        r"\centering\footnotesize\setlength{\tabcolsep}{4pt}",
        *setup,
        rf"\caption{{{latex_escape(_caption(section, panel, title))}}}",
        rf"\label{{{label}}}",
        rf"\fitboard{{\begin{{tabular}}{{{''.join(column.kind for column in columns)}}}",
        r"\toprule",
        *_header(panel, columns),
        r"\midrule",
        *_body(panel, columns),
        r"\bottomrule",
        r"\end{tabular}}",
        *_notes(section, panel),
        rf"\end{{{environment}}}",
        r"\afterboard",
        "",
    ]
    return "\n".join(lines)


def _body(panel: Panel, columns: Sequence[LatexColumn]) -> list[str]:
    lines = []
    for i, row in enumerate(panel.rows):
        lines += [r"\midrule"] if i in panel.breaks else []
        lines.append(_row([c.cell(e) for c, e in zip(columns, row, strict=True)]))
    return lines


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _caption(section: TableSection, panel: Panel, title: str) -> str:
    """The caption: the metric, the data, the regime; and that the data are not comparable, if so."""
    shown = _shown(section, panel)
    if panel is not section.panels[0] and section.notes:
        shown += " (notes: see the first of these tables)"
    warning = f" {section.warning}" if section.warning else ""
    best = " Best in bold, second underlined." if panel is section.panels[0] else ""
    return f"{title.rstrip('.')}{shown}.{best}{warning}"


def _shown(section: TableSection, panel: Panel) -> str:
    """The content of the table, if the section's title does not say it."""
    return "" if not panel.title or panel.title in section.title else f": {panel.title}"


def _notes(section: TableSection, panel: Panel) -> list[str]:
    """The notes, below the first table of the section."""
    if panel is not section.panels[0] or not section.notes:
        return []
    text = " ".join(map(latex_escape, section.notes))
    return [rf"\par\smallskip\parbox{{\linewidth}}{{\scriptsize\raggedright {text}}}"]


def _header(panel: Panel, columns: Sequence[LatexColumn]) -> list[str]:
    """The groups' headings with their rules, if there are any, and the columns' headers."""
    lines, rules, start, column = [], [], 0, 1
    for name, count in panel.spans:
        wide = sum(each.width for each in columns[start : start + count])
        lines.append(
            rf"\multicolumn{{{wide}}}{{c}}{{{latex_escape(name)}}}" if name else "&" * (wide - 1)
        )
        if name:
            rules.append(rf"\cmidrule(lr){{{column}-{column + wide - 1}}}")
        start, column = start + count, column + wide
    above = [_row(lines), " ".join(rules)] if lines else []
    return [*above, _row([c.header(h) for c, h in zip(columns, panel.headers, strict=True)])]


def _points(panel: Panel, columns: Sequence[LatexColumn]) -> float:
    """The estimated width of the table in points."""
    total = 0.0
    for i, column in enumerate(columns):
        longest = max([len(panel.headers[i]), *(len(row[i].text) for row in panel.rows)])
        total += LETTER_POINTS * (longest + 1 - column.width) + GAP_POINTS
    return total
