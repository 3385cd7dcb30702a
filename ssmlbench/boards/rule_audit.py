"""The audit of published F1 and Hamming columns: finds the decision rule that each row can come from.

For any rule, Hamming / (2 (1 - Micro-F1)) = (predicted density + true density) / 2: FP + FN over twice
the entries, against (FP + FN) / (2TP + FP + FN). Under top-k both densities are the true one, so that
the ratio is the same at every π. No paper's code is run for this, and nothing is proved about one row
alone: metrics taken from different epochs break the identity too.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ssmlbench.boards.papers import Interval, LabelDensity, Paper
from ssmlbench.boards.published import PublishedValue

IDENTITY = "Hamming / (2 (1 - Micro-F1)) = (predicted density + true density) / 2, for any rule"

OUT_OF_LINE = 0.2
IN_LINE = 0.05
"""A ratio this far from neighbours that agree this well is a misprint, not another rule."""
UNMOVED = 0.001
"""A metric whose relative change over all π is smaller did not learn from the labels."""

RowKey = tuple[Paper, str, str, str]


def row_key(value: PublishedValue) -> RowKey:
    """Return the key of an audited row: paper, data set, regime and method."""
    return value.paper, value.dataset, value.regime, value.paper_method


@dataclass(frozen=True)
class Ratio:
    """Hamming / (2 (1 - Micro-F1)) of one printed cell, and how far rounding may have moved it."""

    level: str
    value: float
    interval: Interval


@dataclass(frozen=True)
class AuditedRow:
    """One method of one paper on one data set, over π."""

    first: PublishedValue  # identifies the row: its paper, data set, regime and method
    ratios: tuple[Ratio, ...]
    density: LabelDensity | None  # the true one, if it is known or can be inferred
    inferred: bool = False  # the density follows from rows with a constant ratio, not from a source

    @property
    def dataset(self) -> str:
        """Our name of the data set."""
        return self.first.dataset

    @property
    def method(self) -> str:
        """Our name of the method, or the paper's."""
        return self.first.method

    @property
    def constant(self) -> bool:
        """Whether one number lies within the rounding of the ratios at all of several π."""
        return len(self.ratios) > 1 and max(ratio.interval.low for ratio in self.ratios) <= min(
            ratio.interval.high for ratio in self.ratios
        )

    def fits_top_k(self, ratio: Ratio) -> bool:
        """Whether the true density lies within the rounding of the ratio."""
        return self.density is not None and ratio.interval.meets(self.density.interval)

    @property
    def top_k(self) -> bool:
        """Whether every ratio of the row fits top-k."""
        return self.constant and all(map(self.fits_top_k, self.ratios))

    def predicted_share(self, ratio: Ratio) -> float | None:
        """Return the number of predicted labels per true label: 2 ratio / density - 1."""
        return 2 * ratio.value / self.density.interval.middle - 1 if self.density else None

    @property
    def verdict(self) -> str:
        """The rule that the row can come from, in words."""
        if self.top_k:
            return "constant: fits top-k‡"
        if self.constant:
            return "constant, not at the true density: a fixed number of labels, not top-k"
        fitting = [ratio.level for ratio in self.ratios if self.fits_top_k(ratio)]
        but = f" (π {', '.join(fitting)} would fit)" if fitting and len(self.ratios) > 1 else ""
        return f"not constant: threshold or fitted, not top-k{but}"


def audit_rules(values: Sequence[PublishedValue]) -> list[AuditedRow]:
    """Return every published row with both columns, in the files' order.

    Pass the values of all papers: a density that one paper prints or implies is used for the others.
    """
    rows: dict[RowKey, dict[str, dict[str, PublishedValue]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for value in values:
        rows[row_key(value)][value.level][value.metric] = value
    known = _known_densities(values)
    audited = []
    for levels in rows.values():
        if ratios := _ratios(levels):
            first = next(iter(next(iter(levels.values())).values()))
            audited.append(AuditedRow(first, ratios, known.get(first.dataset)))
    return _with_inferred_densities(audited)


def ratio_of(micro_f1: PublishedValue, hamming: PublishedValue) -> Ratio:
    """Return the ratio of two values of one cell, with the interval that their rounding leaves."""

    def at(f1: float, loss: float) -> float:
        return loss / (2 * (1 - f1))

    f, h = micro_f1.value, hamming.value
    low = at(f - micro_f1.rounding, h - hamming.rounding)
    high = at(f + micro_f1.rounding, h + hamming.rounding)
    return Ratio(micro_f1.level, at(f, h), Interval(low, high))


def _ratios(levels: dict[str, dict[str, PublishedValue]]) -> tuple[Ratio, ...]:
    return tuple(
        ratio_of(metrics["micro_f1"], metrics["hamming"])
        for metrics in levels.values()
        if {"micro_f1", "hamming"} <= metrics.keys() and metrics["micro_f1"].value < 1
    )


def _known_densities(values: Iterable[PublishedValue]) -> dict[str, LabelDensity]:
    """The densities that the papers print, by data set; the first paper's where several do."""
    by_dataset: dict[str, LabelDensity] = {}
    for paper in dict.fromkeys(value.paper for value in values):
        for dataset, density in paper.label_density.items():
            by_dataset.setdefault(dataset, density)
    return by_dataset


def _with_inferred_densities(rows: Sequence[AuditedRow]) -> list[AuditedRow]:
    """The rows, with densities that two or more rows of the same constant ratio imply."""
    inferred: dict[str, LabelDensity] = {}
    for dataset in {row.dataset for row in rows if row.density is None}:
        constant = [row for row in rows if row.dataset == dataset and row.constant]
        ratios = [ratio.interval for row in constant for ratio in row.ratios]
        if len(constant) > 1:
            low, high = max(r.low for r in ratios), min(r.high for r in ratios)
            if low <= high:
                source = "inferred: the one constant of the rows that fit"
                inferred[dataset] = LabelDensity(Interval(low, high), source)
    return [
        dataclasses.replace(row, density=inferred[row.dataset], inferred=True)
        if row.density is None and row.dataset in inferred
        else row
        for row in rows
    ]


# --------------------------------------------------------------------------- probable misprints


@dataclass(frozen=True)
class Misprint:
    """A printed number that does not look like the others, and why."""

    value: PublishedValue
    reason: str


def find_misprints(values: Sequence[PublishedValue], rows: Sequence[AuditedRow]) -> list[Misprint]:
    """Return numbers out of line with their neighbours, with odd digits, or the same at every π."""
    return [*_out_of_line(values, rows), *_odd_digits(values), *_unmoved(values)]


def _out_of_line(values: Sequence[PublishedValue], rows: Sequence[AuditedRow]) -> list[Misprint]:
    misprints = []
    for row in rows:
        for ratio in row.ratios:
            others = [other.value for other in row.ratios if other is not ratio]
            if len(others) < 2 or max(others) / min(others) > 1 + IN_LINE:
                continue
            middle = sorted(others)[len(others) // 2]
            if abs(ratio.value / middle - 1) > OUT_OF_LINE:
                misprints.append(_explained(values, row, ratio, middle))
    return misprints


def _explained(
    values: Sequence[PublishedValue], row: AuditedRow, ratio: Ratio, middle: float
) -> Misprint:
    """The Hamming loss behind the ratio, and the data sets it may have been copied from."""
    losses = [v for v in values if (v.metric, v.level) == ("hamming", ratio.level)]
    here = next(v for v in losses if row_key(v) == row_key(row.first))
    twins = [
        v.dataset
        for v in losses
        if (v.paper, v.paper_method, v.digits) == (here.paper, here.paper_method, here.digits)
        and v.dataset != here.dataset
    ]
    copied = f"; it is the value of {' and '.join(twins)} at the same π" if twins else ""
    return Misprint(
        here,
        f"π {ratio.level}: {here.digits} gives {ratio.value:.4f} where the other π give about "
        f"{middle:.4f}{copied}: probable copying error",
    )


def _odd_digits(values: Sequence[PublishedValue]) -> list[Misprint]:
    """A number with more digits than any other of the paper: a typing error."""
    counts: dict[Paper, Counter[int]] = defaultdict(Counter)
    for value in values:
        counts[value.paper][value.decimals] += 1
    return [
        Misprint(
            value,
            f"π {value.level}: printed {value.digits}, the only one with {value.decimals} digits: "
            "probable typing error",
        )
        for value in values
        if counts[value.paper][value.decimals] == 1 < counts[value.paper].total()
    ]


def _unmoved(values: Sequence[PublishedValue]) -> list[Misprint]:
    series: dict[tuple[RowKey, str], list[PublishedValue]] = defaultdict(list)
    for value in values:
        series[row_key(value), value.metric].append(value)
    misprints = []
    for members in series.values():
        numbers = [value.value for value in members]
        if len(members) > 2 and max(numbers) - min(numbers) <= UNMOVED * max(numbers):
            digits = ", ".join(value.digits for value in members)
            misprints.append(Misprint(members[0], f"hardly moves over π: {digits}"))
    return misprints
