r"""A document as LaTeX: booktabs tables, best bold, second underlined, numbers aligned.

pdflatex compiles the text as it is, and a paper can \input it. It is ASCII, whatever a method is called. A
table that is wider than a column of a two-column page is a `table*`; one that is wider than its place
is scaled down to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ssmlbench.boards.render.document import DASH, Document, Entry, Panel, TableSection
from ssmlbench.boards.render.latex_text import latex_escape
from ssmlbench.boards.render.slugs import slugs

HEAD = r"""% `pdflatex` compiles this file as it is; a paper can \input it: \usepackage{booktabs,graphicx}.
\expandafter\ifx\csname @classoptionslist\endcsname\relax
  \documentclass{article}
  \usepackage[margin=1cm,landscape]{geometry}
  \usepackage{booktabs,graphicx}
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
PLUS_MINUS = " ± "
COLUMN_POINTS = 230.0
"""The width of a column in the usual two-column styles, less a little."""
LETTER_POINTS, GAP_POINTS = 4.4, 9.0
"""What a character takes in footnotesize, and the space between columns."""


def as_latex(document: Document) -> str:
    r"""Return the document for pdflatex or \input."""
    panels = [(section, panel) for section in document.sections for panel in section.panels]
    labels = slugs(
        f"{section.key or section.title}{_shown(section, panel)}" for section, panel in panels
    )
    tables = [
        _table(section, panel, label)
        for (section, panel), label in zip(panels, labels, strict=True)
    ]
    return "\n".join([HEAD, *tables, TAIL])


def _table(section: TableSection, panel: Panel, label: str) -> str:
    paired = [_is_paired(panel, i) for i in range(len(panel.headers))]
    environment = "table*" if _points(panel, paired) > COLUMN_POINTS else "table"
    kinds = ["l" if i < panel.left else r"r@{\,}l" if p else "r" for i, p in enumerate(paired)]
    lines = [
        rf"\begin{{{environment}}}[tbp]",
        r"\centering\footnotesize\setlength{\tabcolsep}{4pt}",
        rf"\caption{{{latex_escape(_caption(section, panel))}}}",
        rf"\label{{tab:{label}}}",
        rf"\fitboard{{\begin{{tabular}}{{{''.join(kinds)}}}",
        r"\toprule",
        *_header(panel, paired),
        r"\midrule",
        *(" & ".join(map(_cell, row, paired)) + r" \\" for row in panel.rows),
        r"\bottomrule",
        r"\end{tabular}}",
        *_notes(section, panel),
        rf"\end{{{environment}}}",
        r"\afterboard",
        "",
    ]
    return "\n".join(lines)


def _caption(section: TableSection, panel: Panel) -> str:
    """What the table shows: the metric, the data, the regime; and that it is not comparable, if so."""
    shown = _shown(section, panel)
    if panel is not section.panels[0] and section.notes:
        shown += " (notes: see the first of these tables)"
    warning = f" {section.warning}" if section.warning else ""
    best = " Best in bold, second underlined." if panel is section.panels[0] else ""
    return f"{section.title}{shown}.{best}{warning}"


def _shown(section: TableSection, panel: Panel) -> str:
    """What the table shows, if the section's title does not say it."""
    return "" if not panel.title or panel.title in section.title else f": {panel.title}"


def _notes(section: TableSection, panel: Panel) -> list[str]:
    """The notes, below the first table of the section."""
    if panel is not section.panels[0] or not section.notes:
        return []
    text = " ".join(map(latex_escape, section.notes))
    return [rf"\par\smallskip\parbox{{\linewidth}}{{\scriptsize\raggedright {text}}}"]


def _header(panel: Panel, paired: Sequence[bool]) -> list[str]:
    """The groups' headings with their rules, if there are any, and the columns' headers."""
    widths = [2 if each else 1 for each in paired]
    lines, rules, start, column = [], [], 0, 1
    for name, count in panel.spans:
        wide = sum(widths[start : start + count])
        lines.append(
            rf"\multicolumn{{{wide}}}{{c}}{{{latex_escape(name)}}}" if name else "&" * (wide - 1)
        )
        if name:
            rules.append(rf"\cmidrule(lr){{{column}-{column + wide - 1}}}")
        start, column = start + count, column + wide
    above = [" & ".join(lines) + r" \\", " ".join(rules)] if lines else []
    names = [
        rf"\multicolumn{{2}}{{c}}{{{latex_escape(header)}}}" if pair else latex_escape(header)
        for header, pair in zip(panel.headers, paired, strict=True)
    ]
    return [*above, " & ".join(names) + r" \\"]


def _is_paired(panel: Panel, column: int) -> bool:
    """Whether the column has means with spreads: two columns, so that both are aligned."""
    return column >= panel.left and any(PLUS_MINUS in row[column].text for row in panel.rows)


def _points(panel: Panel, paired: Sequence[bool]) -> float:
    """About how wide the table is."""
    total = 0.0
    for i, pair in enumerate(paired):
        longest = max([len(panel.headers[i]), *(len(row[i].text) for row in panel.rows)])
        total += LETTER_POINTS * (longest - pair) + GAP_POINTS
    return total


def _cell(entry: Entry, paired: bool) -> str:
    mean, spread, std = entry.text.partition(PLUS_MINUS) if paired else (entry.text, "", "")
    if paired and mean == DASH:
        return rf"\multicolumn{{2}}{{c}}{{{latex_escape(DASH)}}}"
    parts = [_emphasised(latex_escape(mean), entry.place)]
    if paired:
        bold = 1 if entry.place == 1 else 0  # two underlines side by side look like one bar
        parts.append(_emphasised(rf"$\pm$ {latex_escape(std)}", bold) if spread else "")
    return " & ".join(parts)


def _emphasised(text: str, place: int) -> str:
    if place == 1:
        return rf"\textbf{{{text}}}"
    return rf"\underline{{{text}}}" if place == 2 else text
