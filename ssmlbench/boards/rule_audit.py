"""The audit of published F1 and Hamming columns: which decision rule can each row come from?

For any rule, Hamming / (2 (1 - Micro-F1)) = (predicted density + true density) / 2: FP + FN over twice
the entries, against (FP + FN) / (2TP + FP + FN). Under top-k both densities are the true one, so that
the ratio is the same at every π. No paper's code is run for this, and nothing is proved about one row
alone: metrics taken from different epochs break the identity too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ssmlbench.boards.published import Printed

IDENTITY = "Hamming / (2 (1 - Micro-F1)) = (predicted density + true density) / 2, for any rule"

KNOWN_DENSITY = {  # HML Table 1: mean positives a row (printed to 0.01) over the number of labels
    "voc2012": (1.435 / 20, 1.445 / 20),
    "coco2014": (2.915 / 80, 2.925 / 80),
}

OUT_OF_LINE = 0.2
IN_LINE = 0.05
"""A ratio this far from neighbours that agree this well is one number misprinted, not a rule."""
UNMOVED = 0.001
"""A metric that moves by a smaller part over all π did not learn from the labels."""


@dataclass(frozen=True)
class Interval:
    low: float
    high: float

    def meets(self, other: Interval) -> bool:
        return self.low <= other.high and other.low <= self.high

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2


@dataclass(frozen=True)
class Ratio:
    """Hamming / (2 (1 - Micro-F1)) of one printed cell, and how far rounding may have moved it."""

    level: str
    value: float
    interval: Interval


@dataclass(frozen=True)
class AuditedRow:
    """One method on one data set, over π."""

    dataset: str
    method: str
    printed_method: str
    ratios: tuple[Ratio, ...]
    density: Interval | None  # the true one; None where nothing tells
    inferred: bool  # the density is that of rows that are constant, not a data set's card

    @property
    def constant(self) -> bool:
        """One number within rounding at every π, of which there are several."""
        return len(self.ratios) > 1 and max(ratio.interval.low for ratio in self.ratios) <= min(
            ratio.interval.high for ratio in self.ratios
        )

    def fits_top_k(self, ratio: Ratio) -> bool:
        return self.density is not None and ratio.interval.meets(self.density)

    @property
    def top_k(self) -> bool:
        return self.constant and all(map(self.fits_top_k, self.ratios))

    def predicted_share(self, ratio: Ratio) -> float | None:
        """How many labels were predicted for each true one: 2 ratio / density - 1."""
        return 2 * ratio.value / self.density.middle - 1 if self.density else None

    @property
    def verdict(self) -> str:
        if self.top_k:
            return "constant: fits top-k‡"
        if self.constant:
            return "constant, not at the true density: a fixed number of labels, not top-k"
        fitting = [ratio.level for ratio in self.ratios if self.fits_top_k(ratio)]
        but = f" (π {', '.join(fitting)} would fit)" if fitting and len(self.ratios) > 1 else ""
        return f"not constant: threshold or fitted, not top-k{but}"


def audit(entries: Iterable[Printed]) -> list[AuditedRow]:
    """Every published row with both columns, in the files' order."""
    cells: dict[tuple[str, str, str], dict[str, dict[str, Printed]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for entry in entries:
        cells[entry.dataset, entry.method, entry.printed_method][entry.level][entry.metric] = entry
    rows = [
        AuditedRow(*key, ratios, _known(key[0]), False)
        for key, levels in cells.items()
        if (ratios := _ratios(levels))
    ]
    return _with_inferred_densities(rows)


def ratio_of(micro_f1: Printed, hamming: Printed) -> Ratio:
    def at(f1: float, loss: float) -> float:
        return loss / (2 * (1 - f1))

    f, h = micro_f1.value, hamming.value
    low = at(f - micro_f1.rounding, h - hamming.rounding)
    high = at(f + micro_f1.rounding, h + hamming.rounding)
    return Ratio(micro_f1.level, at(f, h), Interval(low, high))


def _ratios(levels: dict[str, dict[str, Printed]]) -> tuple[Ratio, ...]:
    return tuple(
        ratio_of(metrics["micro_f1"], metrics["hamming"])
        for metrics in levels.values()
        if {"micro_f1", "hamming"} <= metrics.keys() and metrics["micro_f1"].value < 1
    )


def _known(dataset: str) -> Interval | None:
    return Interval(*KNOWN_DENSITY[dataset]) if dataset in KNOWN_DENSITY else None


def _with_inferred_densities(rows: Sequence[AuditedRow]) -> list[AuditedRow]:
    """Where no card tells the density, two or more rows with one and the same constant do."""
    inferred: dict[str, Interval] = {}
    for dataset in {row.dataset for row in rows if row.density is None}:
        constant = [row for row in rows if row.dataset == dataset and row.constant]
        ratios = [ratio.interval for row in constant for ratio in row.ratios]
        if len(constant) > 1:
            low, high = max(r.low for r in ratios), min(r.high for r in ratios)
            if low <= high:
                inferred[dataset] = Interval(low, high)
    return [
        AuditedRow(
            row.dataset, row.method, row.printed_method, row.ratios, inferred[row.dataset], True
        )
        if row.density is None and row.dataset in inferred
        else row
        for row in rows
    ]


# --------------------------------------------------------------------------- probable misprints


@dataclass(frozen=True)
class Misprint:
    """A printed number that does not look like the others, and why."""

    dataset: str
    method: str
    metric: str
    what: str


def misprints(entries: Sequence[Printed], rows: Sequence[AuditedRow]) -> list[Misprint]:
    return [*_out_of_line(entries, rows), *_odd_digits(entries), *_unmoved(entries)]


def _out_of_line(entries: Sequence[Printed], rows: Sequence[AuditedRow]) -> list[Misprint]:
    found = []
    for row in rows:
        for ratio in row.ratios:
            others = [other.value for other in row.ratios if other is not ratio]
            if len(others) < 2 or max(others) / min(others) > 1 + IN_LINE:
                continue
            middle = sorted(others)[len(others) // 2]
            if abs(ratio.value / middle - 1) > OUT_OF_LINE:
                found.append(_explained(entries, row, ratio, middle))
    return found


def _explained(
    entries: Sequence[Printed], row: AuditedRow, ratio: Ratio, middle: float
) -> Misprint:
    mine = [e for e in entries if e.printed_method == row.printed_method]
    here = next(
        e for e in mine if (e.dataset, e.level, e.metric) == (row.dataset, ratio.level, "hamming")
    )
    twins = [
        e.dataset
        for e in mine
        if e.dataset != row.dataset
        and (e.level, e.metric, e.digits) == (here.level, here.metric, here.digits)
    ]
    copied = f"; it is the value of {' and '.join(twins)} at the same π" if twins else ""
    what = (
        f"π {ratio.level}: {here.digits} gives {ratio.value:.4f} where the other π give about "
        f"{middle:.4f}{copied}: probable copying error"
    )
    return Misprint(row.dataset, row.method, "hamming", what)


def _odd_digits(entries: Sequence[Printed]) -> list[Misprint]:
    """More digits than any other number of the paper has: a slipped key."""
    usual: dict[str, Counter[int]] = defaultdict(Counter)
    for entry in entries:
        usual[entry.paper][entry.decimals] += 1
    return [
        Misprint(
            entry.dataset,
            entry.method,
            entry.metric,
            f"π {entry.level}: printed {entry.digits}, the only one with {entry.decimals} digits: "
            "probable typing error",
        )
        for entry in entries
        if usual[entry.paper][entry.decimals] == 1 < len(entries)
    ]


def _unmoved(entries: Sequence[Printed]) -> list[Misprint]:
    series: dict[tuple[str, str, str, str], list[Printed]] = defaultdict(list)
    for entry in entries:
        series[entry.dataset, entry.method, entry.printed_method, entry.metric].append(entry)
    found = []
    for (dataset, method, _, metric), members in series.items():
        values = [entry.value for entry in members]
        if len(members) > 2 and max(values) - min(values) <= UNMOVED * max(values):
            what = f"hardly moves over π: {', '.join(entry.digits for entry in members)}"
            found.append(Misprint(dataset, method, metric, what))
    return found
