"""The papers' numbers: read from leaderboards/published, under our names and as fractions.

They are facts about papers, made under other protocols. Nothing here judges them; audit does.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ssmlbench.boards.leaderboard import Board, BoardRow, Query
from ssmlbench.core.errors import UserError
from ssmlbench.core.paths import builtin_root

COLUMNS = ("source", "dataset", "method", "pi", "metric", "value", "std", "regime", "unit")
UNITS = {"fraction": 1.0, "percent": 100.0}

DATASETS = {
    "VOC": "voc2012",
    "VOC12": "voc2012",
    "COCO": "coco2014",
    "AWA": "awa2",
    "NUS": "nuswide",
    "CUB": "cub",
    "Ohsumed": "ohsumed",
    "AAPD": "aapd",
}

METRIC_KEYS = {
    "Micro-F1": "micro_f1",
    "Macro-F1": "macro_f1",
    "mAP": "map",
    "Hamming Loss": "hamming",
    "One Loss": "one_loss",
}

METHODS = {
    "S2ML2-BBAM": "bbam",
    "w/o BBAM": "bbam (balance=false)",
    "SoftMatch": "softmatch",
    "FlatMatch": "flatmatch",
    "DRML": "drml",
    "CAP": "cap",
    "MIME": "mime",
    "BCE": "bce",
    "BCE loss": "bce",
    "AN": "an",
    "AN loss": "an",
    "WAN": "wan",
    "DW": "wan",
    "L1R": "l1r",
    "L2R": "l2r",
    "LS": "ls",
    "N-LS": "nls",
    "EntMin": "entmin",
    "Focal loss": "focal",
    "ASL": "asl",
    "EPR": "epr",
    "ROLE": "role",
    "ROLE+LI": "role_li",
    "EM loss": "em",
    "EM loss + APL": "em_apl",
    "HML": "hml (adaptive=true)",
    "HML adaptive (HL+AL)": "hml (adaptive=true)",
    "HML fixed (HL only)": "hml",
}
"""The papers' names → ours, with the changed hyper-parameters as boards write them."""


@dataclass(frozen=True)
class Paper:
    """What must be said beside a paper's numbers."""

    title: str
    rule: str
    selected_on_test: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # methods, data sets
    made: str = ""


PAPERS = {
    "bbam-neurips2024": Paper(
        "BBAM, NeurIPS 2024 (slides)",
        "F1 and Hamming by its released evaluation: the true number of labels of each row (top-k), if "
        "that is what was run; the values marked ‡ fit it, the others do not "
        "(`ssmlbench compare --audit`)",
        (("bbam", "cap"), ("voc2012", "coco2014", "awa2")),
        "ResNet-50 at 224 px, BERT-base",
    ),
    "hml-eccv2022": Paper(
        "HML, ECCV 2022", "mAP only, which needs no decision rule", made="ResNet-50 at 448 px"
    ),
    "em-apl-eccv2022": Paper(
        "EM + APL, ECCV 2022 (poster)",
        "mAP only, which needs no decision rule",
        made="ResNet-50 at 448 px",
    ),
}


@dataclass(frozen=True)
class Printed:
    """One number as a paper prints it."""

    paper: str  # the file's name without .csv
    sources: tuple[str, ...]  # the tables it stands in
    dataset: str
    regime: str
    level: str
    method: str  # ours, or the paper's name where we have none
    printed_method: str
    metric: str
    digits: str  # as printed
    unit: str
    std: float | None  # a fraction, as value is

    @cached_property
    def value(self) -> float:
        return float(self.digits) / UNITS[self.unit]

    @property
    def decimals(self) -> int:
        """Of the value as a fraction."""
        printed = len(self.digits.partition(".")[2])
        return printed + 2 if self.unit == "percent" else printed

    @property
    def rounding(self) -> float:
        """The true number lies within this of the value: half of the last printed digit."""
        return 0.5 * 10.0**-self.decimals

    @property
    def about(self) -> Paper:
        return PAPERS.get(self.paper, Paper(self.paper, "decision rule not recorded"))

    @property
    def selected_on_test(self) -> bool:
        methods, datasets = self.about.selected_on_test
        return self.method in methods and self.dataset in datasets


def published_folder() -> Path:
    return builtin_root() / "leaderboards" / "published"


def read_published(folder: Path | None = None) -> list[Printed]:
    """Every published number once, in the files' order; a cell two tables share names both."""
    folder = folder or published_folder()
    files = sorted(folder.glob("*.csv"))
    if not files:
        raise UserError(f"no published numbers at {folder}: the installation is incomplete")
    found: dict[tuple[str, ...], Printed] = {}
    for file in files:
        with file.open(encoding="utf-8", newline="") as stream:
            rows = csv.DictReader(stream)
            if tuple(rows.fieldnames or ()) != COLUMNS:
                raise UserError(f"{file}: its columns must be {','.join(COLUMNS)}")
            for number, row in enumerate(rows, start=2):
                try:
                    entry = _entry(file.stem, row)
                except (KeyError, ValueError) as error:
                    raise UserError(f"{file}, line {number}: {error} cannot be read") from None
                key = (
                    *(entry.paper, entry.dataset, entry.regime, entry.level),
                    *(entry.printed_method, entry.metric, entry.digits),
                )
                known = found.get(key)
                sources = (*known.sources, *entry.sources) if known else entry.sources
                found[key] = replace(entry, sources=tuple(dict.fromkeys(sources)))
    return list(found.values())


def _entry(paper: str, row: dict[str, str]) -> Printed:
    unit = row["unit"]
    float(row["value"])  # a bad number is met here, where its line is known
    return Printed(
        paper,
        (row["source"],),
        DATASETS.get(row["dataset"], row["dataset"]),
        row["regime"],
        f"{float(row['pi']):g}" if row["pi"] else "",
        METHODS.get(row["method"], row["method"]),
        row["method"],
        METRIC_KEYS[row["metric"]],
        row["value"],
        unit,
        float(row["std"]) / UNITS[unit] if row["std"] else None,
    )


def wanted(entries: Iterable[Printed], query: Query) -> list[Printed]:
    """What the filters of `compare` leave; a method is asked for by our name or the paper's."""
    return [
        entry
        for entry in entries
        if (not query.datasets or entry.dataset in query.datasets)
        and (not query.regimes or entry.regime in query.regimes)
        and (not entry.level or query.wants_number(entry.regime, float(entry.level)))
        and (
            not query.methods
            or entry.method.partition(" (")[0] in query.methods
            or entry.printed_method in query.methods
        )
        and entry.metric in query.metrics
    ]


# ------------------------------------------------------------------------------ side by side


@dataclass
class Line:
    """One method of one paper, beside our row of the same name if there is one."""

    method: str
    printed: dict[tuple[str, str], Printed]  # by (metric key, level)
    measured: BoardRow | None

    @property
    def first(self) -> Printed | None:
        return next(iter(self.printed.values()), None)

    def difference(self, metric: str, level: str) -> float | None:
        """Ours less theirs, where there are both."""
        theirs = self.printed.get((metric, level))
        ours = self.measured.cells.get((metric, level)) if self.measured else None
        return ours.mean - theirs.value if ours and theirs else None


@dataclass
class SideBySide:
    """The papers' numbers on one data set in one regime, and our board there if it has been run."""

    dataset: str
    regime: str
    levels: list[str]
    metrics: list[str]
    lines: list[Line]
    board: Board | None


def side_by_side(entries: Sequence[Printed], boards: Sequence[Board]) -> list[SideBySide]:
    """One table a data set and regime with published numbers; `boards`: the main ones."""
    groups: dict[tuple[str, str], list[Printed]] = defaultdict(list)
    for entry in entries:
        groups[entry.dataset, entry.regime].append(entry)
    mine = {(board.dataset, board.regime): board for board in boards if not board.apart}
    return [_table(groups[key], mine.get(key)) for key in sorted(groups)]


def _table(entries: Sequence[Printed], board: Board | None) -> SideBySide:
    rows = {row.name: row for row in board.rows} if board else {}
    by_method: dict[tuple[str, str], dict[tuple[str, str], Printed]] = defaultdict(dict)
    for entry in entries:
        # Two names of a paper for one thing (a table and its ablation) stay two lines.
        by_method[entry.paper, entry.printed_method][entry.metric, entry.level] = entry
    lines = []
    for printed in by_method.values():
        method = next(iter(printed.values())).method
        lines.append(Line(method, printed, rows.get(method)))
    named = {line.method for line in lines}
    lines += [Line(name, {}, row) for name, row in rows.items() if name not in named]
    asked = [metric.key for metric in board.metrics] if board else []
    there = {entry.metric for entry in entries}
    levels = {entry.level for entry in entries} | set(board.levels if board else ())
    return SideBySide(
        entries[0].dataset,
        entries[0].regime,
        sorted(levels, key=lambda level: float(level or 0)),
        [key for key in METRIC_KEYS.values() if key in there or key in asked],
        lines,
        board,
    )
