"""The format of a table's numbers: digits, percent, the mean with its spread."""

from __future__ import annotations

from dataclasses import dataclass

from ssmlbench.boards.board import Cell
from ssmlbench.boards.columns import COSTS, Column
from ssmlbench.boards.render.document import DASH
from ssmlbench.core.errors import UserError

MOST_DIGITS = 9


@dataclass(frozen=True)
class NumberStyle:
    """Decimals and unit of the metrics in a table; costs always have two decimals."""

    digits: int | None = None  # decimals; None: 4, in percent 2
    percent: bool = False
    spread: bool = True  # the deviation beside the mean

    def __post_init__(self) -> None:
        if self.digits is not None and not 0 <= self.digits <= MOST_DIGITS:
            raise UserError(f"--digits {self.digits}: must lie between 0 and {MOST_DIGITS}")

    def scaled(self, value: float, metric: Column) -> float:
        """The value in the unit of the table."""
        return value * 100 if self.percent and metric.key not in COSTS else value

    def decimals(self, metric: Column) -> int:
        """The number of decimals of a value."""
        if metric.key in COSTS:
            return 2
        return self.digits if self.digits is not None else 2 if self.percent else 4

    def value(self, value: float, metric: Column) -> float:
        """The value in the table's unit; rounded only where the digits were chosen."""
        scaled = self.scaled(value, metric)
        return scaled if self.digits is None else round(scaled, self.decimals(metric))

    def text(self, value: float, metric: Column) -> str:
        """One value."""
        return f"{self.scaled(value, metric):.{self.decimals(metric)}f}"

    def signed(self, value: float, metric: Column) -> str:
        """One difference, with its sign; one decimal less than values have."""
        decimals = self.decimals(metric) if self.digits is not None else self.decimals(metric) - 1
        return f"{self.scaled(value, metric):+.{decimals}f}"

    def cell(self, cell: Cell | None, metric: Column) -> str:
        """`0.8541 ± 0.0085`, with ` [0.8444, 0.8630]` behind it where there is an interval."""
        if cell is None:
            return DASH
        text = self.text(cell.mean, metric)
        if cell.std is not None and self.spread:
            text += f" ± {self.text(cell.std, metric)}"
        if cell.interval is not None and self.spread:
            text += f" [{', '.join(self.text(end, metric) for end in cell.interval)}]"
        return text


PLAIN = NumberStyle()
"""Fractions with four decimals."""
