r"""The columns of a LaTeX table, and the alignment of their numbers.

`plain` needs no package: means and deviations are columns of their own. `siunitx` makes them S columns,
aligned at the decimal point.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ssmlbench.boards.render.document import DASH, Entry, Panel
from ssmlbench.boards.render.latex_text import latex_escape

PLUS_MINUS = " ± "
PLAIN_ALIGNMENT, SIUNITX = "plain", "siunitx"
ALIGNMENTS = (PLAIN_ALIGNMENT, SIUNITX)
NUMBER = re.compile(r"(?P<sign>[+-]?)(?P<whole>\d+)(?P<point>\.?)(?P<decimals>\d*)(?P<mark>\D*)")
NEGATIVE = re.compile(r"(?<![\w.)-])-(?=\d)")
"""The sign of a negative number, which LaTeX would print as a hyphen."""


class LatexColumn(Protocol):
    """A column of the table; it may be two columns of the tabular."""

    @property
    def kind(self) -> str:
        """Its part of the tabular's argument."""
        ...

    @property
    def width(self) -> int:
        """The number of columns in the tabular."""
        ...

    def header(self, text: str) -> str:
        """The header's cells."""
        ...

    def cell(self, entry: Entry) -> str:
        """The cells of one entry."""
        ...


def latex_columns(panel: Panel, align: str) -> list[LatexColumn]:
    """The columns of a panel; with `siunitx`, those that hold plain numbers are S columns."""
    columns: list[LatexColumn] = []
    for i in range(len(panel.headers)):
        entries = [row[i].text for row in panel.rows]
        paired = i >= panel.left and any(PLUS_MINUS in text for text in entries)
        aligned = _aligned(entries) if align == SIUNITX and i >= panel.left else None
        mark = _Shape.of([text.partition(PLUS_MINUS)[0] for text in entries]).mark
        columns.append(aligned or _PlainColumn("l" if i < panel.left else "r", paired, mark))
    return columns


# ------------------------------------------------------------------------------------------ plain


@dataclass(frozen=True)
class _PlainColumn:
    """Text, or numbers to the right; means and deviations as two columns."""

    side: str
    paired: bool
    mark: str  # the longest behind a number: numbers without one leave its room free

    @property
    def kind(self) -> str:
        return r"r@{\,}l" if self.paired else self.side

    @property
    def width(self) -> int:
        return 2 if self.paired else 1

    def header(self, text: str) -> str:
        return _over_both(text) if self.paired else latex_escape(text)

    def cell(self, entry: Entry) -> str:
        mean, spread, std = (
            entry.text.partition(PLUS_MINUS) if self.paired else (entry.text, "", "")
        )
        if self.paired and mean == DASH:
            return _over_both(DASH)
        match = NUMBER.fullmatch(mean) if self.side == "r" else None
        room = _phantom(self.mark) if match and not match["mark"].strip() else ""
        signed = mean if self.side == "l" else NEGATIVE.sub("−", mean)
        parts = [_emphasised(latex_escape(signed), entry.place) + room]
        if self.paired:
            bold = 1 if entry.place == 1 else 0  # two underlines side by side look like one bar
            parts.append(_emphasised(rf"$\pm$ {latex_escape(std)}", bold) if spread else "")
        return " & ".join(parts)


def _over_both(text: str) -> str:
    return rf"\multicolumn{{2}}{{c}}{{{latex_escape(text)}}}"


def _emphasised(text: str, place: int) -> str:
    if place == 1:
        return rf"\textbf{{{text}}}"
    return rf"\underline{{{text}}}" if place == 2 else text


# ---------------------------------------------------------------------------------------- siunitx


def _aligned(entries: Sequence[str]) -> _NumberColumn | None:
    """An S column, if the entries are numbers and words; None where a word has digits."""
    pairs = [text.partition(PLUS_MINUS) for text in entries]
    means, stds = [mean for mean, _, _ in pairs], [std for _, plus, std in pairs if plus]
    texts = [*means, *stds]
    if not any(map(NUMBER.fullmatch, texts)) or any(
        not NUMBER.fullmatch(text) and re.search(r"\d", text) for text in texts
    ):
        return None
    return _NumberColumn(_Shape.of(means), _Shape.of(stds) if stds else None)


@dataclass(frozen=True)
class _Shape:
    """The room that the numbers of a column take."""

    signed: bool
    whole: int
    decimals: int
    mark: str  # the longest text behind a number, as LaTeX

    @classmethod
    def of(cls, texts: Sequence[str]) -> _Shape:
        matches = [match for text in texts if (match := NUMBER.fullmatch(text))]
        return cls(
            any(match["sign"] for match in matches),
            max((len(match["whole"]) for match in matches), default=1),
            max((len(match["decimals"]) for match in matches), default=0),
            latex_escape(max((match["mark"].strip() for match in matches), key=len, default="")),
        )

    def kind(self, before: str = "") -> str:
        """The S column with its format."""
        decimals = f".{self.decimals}" if self.decimals else ""
        keys = [f"table-format={'+' if self.signed else ''}{self.whole}{decimals}"]
        keys += [f"table-space-text-pre={{{before}}}"] if before else []
        keys += [f"table-space-text-post={{{self.mark}}}"] if self.mark else []
        return f"S[{','.join(keys)}]"

    def padded(self, match: re.Match[str]) -> tuple[str, str]:
        """Invisible text before and behind a number that siunitx does not align itself."""
        sign = "+" if self.signed and not match["sign"] else ""
        before = sign + "0" * (self.whole - len(match["whole"]))
        point = "." if self.decimals and not match["point"] else ""
        behind = point + "0" * (self.decimals - len(match["decimals"]))
        mark = latex_escape(match["mark"].strip())
        return _phantom(before), f"{_phantom(behind)}{mark or _phantom(self.mark)}"


def _phantom(text: str) -> str:
    return rf"\phantom{{{text}}}" if text else ""


@dataclass(frozen=True)
class _NumberColumn:
    """Numbers aligned at the point by siunitx, and their deviations, if there are any, beside them."""

    mean: _Shape
    std: _Shape | None
    sign: str = r"$\pm\,$"

    @property
    def kind(self) -> str:
        return self.mean.kind() + (rf"@{{\,}}{self.std.kind(self.sign)}" if self.std else "")

    @property
    def width(self) -> int:
        return 2 if self.std else 1

    def header(self, text: str) -> str:
        return _over_both(text) if self.std else f"{{{latex_escape(text)}}}"

    def cell(self, entry: Entry) -> str:
        mean, plus, std = entry.text.partition(PLUS_MINUS)
        if self.std and not NUMBER.fullmatch(mean):
            return _over_both(mean)
        first = self._mean(mean, entry.place)
        if not self.std:
            return first
        return f"{first} & {{{self.sign}}} {_number(std)}" if plus else f"{first} &"

    def _mean(self, text: str, place: int) -> str:
        """The number; siunitx makes it bold, but an underlined one is text with the column's width."""
        match = NUMBER.fullmatch(text)
        if match is None:
            return f"{{{latex_escape(text)}}}"
        if place != 2:
            return rf"\bfseries {_number(text)}" if place == 1 else _number(text)
        before, behind = self.mean.padded(match)
        digits = "".join(match.group("sign", "whole", "point", "decimals"))
        return rf"{{{before}\underline{{${digits}$}}{behind}}}"


def _number(text: str) -> str:
    """The number as siunitx reads it, and its mark as text."""
    match = NUMBER.fullmatch(text)
    if match is None:
        return f"{{{latex_escape(text)}}}"
    mark = latex_escape(match["mark"].strip())
    return "".join(match.group("sign", "whole", "point", "decimals")) + (
        f" {{{mark}}}" if mark else ""
    )
