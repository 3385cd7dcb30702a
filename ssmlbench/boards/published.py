"""The papers' numbers: read from leaderboards/published, under our names and as fractions.

They were made under other protocols. rule_audit.py checks them; this module only reads them.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ssmlbench.boards.papers import OurMethod, Paper, read_paper
from ssmlbench.boards.query import Query
from ssmlbench.core.errors import UserError
from ssmlbench.core.hyperparameters import as_typed
from ssmlbench.core.paths import builtin_root
from ssmlbench.core.plain_files import plain_text
from ssmlbench.core.spec import REGIME_NUMBERS
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.protocol.regimes import REGIMES

CSV_COLUMNS = ("source", "dataset", "method", "pi", "metric", "value", "std", "regime", "unit")
UNITS = {"fraction": 1.0, "percent": 100.0}

LONGEST_NUMBER = 30
"""Characters. The rounding of a number with hundreds of decimals would be zero."""


@dataclass(frozen=True)
class PublishedValue:
    """One number as a paper prints it."""

    paper: Paper
    sources: tuple[str, ...]  # the tables that print it
    dataset: str  # our name; so are regime and metric
    paper_dataset: str
    regime: str
    level: str  # π or share; "" where the regime has none
    paper_method: str
    our_method: OurMethod | None  # None where we do not have the method
    metric: str
    digits: str  # as printed
    unit: str
    std: float | None  # a fraction, as value is

    @property
    def method(self) -> str:
        """Our name of the method with its settings, or the paper's where we do not have it."""
        return self.our_method.label if self.our_method else self.paper_method

    @cached_property
    def value(self) -> float:
        """The number as a fraction."""
        return float(self.digits) / UNITS[self.unit]

    @property
    def decimals(self) -> int:
        """The number of decimals of the value as a fraction."""
        printed = len(self.digits.partition(".")[2])
        return printed + 2 if self.unit == "percent" else printed

    @property
    def rounding(self) -> float:
        """The true number lies within this of the value: half of the last printed digit."""
        return 0.5 * 10.0**-self.decimals

    @property
    def selected_on_test(self) -> bool:
        """Whether the paper's code selects the epoch on the test set."""
        return self.paper.selected_on_test(self.paper_method, self.paper_dataset)


def published_folder() -> Path:
    """Return the folder of the papers that come with ssmlbench."""
    return builtin_root() / "leaderboards" / "published"


def read_published(folders: Iterable[Path] = ()) -> list[PublishedValue]:
    """Read every published number: the papers that come with ssmlbench, then those of `folders`."""
    papers: dict[str, Path] = {}
    values: list[PublishedValue] = []
    for folder in (published_folder(), *folders):
        for file in _paper_files(folder):
            if file.stem in papers:
                raise UserError(f"{file}: {papers[file.stem]} has the same name; rename one")
            papers[file.stem] = file
            values += _read_values(read_paper(file), file.with_suffix(".csv"))
    return values


def _paper_files(folder: Path) -> list[Path]:
    """The papers' TOML files; a UserError for a CSV file without one, or a folder without papers."""
    if not folder.is_dir():
        raise UserError(f"no folder of published tables at {folder}")
    for file in sorted(folder.glob("*.csv")):
        if not file.with_suffix(".toml").is_file():
            raise UserError(
                f"{file}: {file.stem}.toml is missing beside it; docs/leaderboards.md says what it holds"
            )
    files = sorted(folder.glob("*.toml"))
    if not files:
        raise UserError(f"no published tables in {folder}: a paper is a .toml and a .csv file")
    return files


def _read_values(paper: Paper, file: Path) -> list[PublishedValue]:
    """The numbers of one paper in the file's order; a number that two tables print is there once."""
    values_by_key: dict[tuple[str, ...], PublishedValue] = {}
    try:
        with plain_text(file) as stream:
            rows = csv.DictReader(stream)
            if tuple(rows.fieldnames or ()) != CSV_COLUMNS:
                raise UserError(f"{file}: its columns must be {','.join(CSV_COLUMNS)}")
            for row in rows:
                try:
                    value = _read_value(paper, row)
                except ValueError as error:
                    raise UserError(f"{file}, line {rows.line_num}: {error}") from None
                key = (
                    *(value.dataset, value.regime, value.level),
                    *(value.paper_method, value.metric, value.digits),
                )
                known = values_by_key.get(key)
                sources = (*known.sources, *value.sources) if known else value.sources
                values_by_key[key] = replace(value, sources=tuple(dict.fromkeys(sources)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{file}: {error}") from None
    return list(values_by_key.values())


def _read_value(paper: Paper, row: dict[str, str]) -> PublishedValue:
    """Parse one line now, so that the error can name the line."""
    if None in row or None in row.values():
        raise ValueError(f"must have {len(CSV_COLUMNS)} fields")
    for table, names in (("datasets", paper.datasets), ("metrics", paper.metrics)):
        name = row[table.removesuffix("s")]
        if name not in names:
            raise ValueError(f"{name!r} is not in [{table}] of {paper.key}.toml")
    if row["method"] not in paper.methods and row["method"] not in paper.other_methods:
        raise ValueError(
            f"{row['method']!r} is neither in [methods] nor in other_methods of {paper.key}.toml"
        )
    for column, allowed in (("regime", tuple(REGIMES)), ("unit", tuple(UNITS))):
        if row[column] not in allowed:
            raise ValueError(f"{column} {row[column]!r}.{did_you_mean(row[column], allowed)}")
    for column in ("value", "std", "pi"):
        if column == "value" or row[column]:
            _check_number(column, row[column])
    number = REGIME_NUMBERS.get(row["regime"])
    if bool(row["pi"]) != bool(number):
        expected = f"the regime's {number.symbol}" if number else "empty"
        raise ValueError(f"pi {row['pi']!r}: for {row['regime']} it must be {expected}")
    return PublishedValue(
        paper=paper,
        sources=(row["source"],),
        dataset=paper.datasets[row["dataset"]],
        paper_dataset=row["dataset"],
        regime=row["regime"],
        level=as_typed(float(row["pi"])) if row["pi"] else "",
        paper_method=row["method"],
        our_method=paper.methods.get(row["method"]),
        metric=paper.metrics[row["metric"]],
        digits=row["value"],
        unit=row["unit"],
        std=float(row["std"]) / UNITS[row["unit"]] if row["std"] else None,
    )


def _check_number(column: str, text: str) -> None:
    try:
        is_number = math.isfinite(float(text)) and len(text) <= LONGEST_NUMBER
    except ValueError:
        is_number = False
    if not is_number:
        raise ValueError(f"{column} {text[:LONGEST_NUMBER]!r} is not a number as papers print them")


def filtered(values: Iterable[PublishedValue], query: Query) -> list[PublishedValue]:
    """Return the values of the query; a method is named by our name or the paper's."""
    return [
        value
        for value in values
        if (not query.datasets or value.dataset in query.datasets)
        and (not query.regimes or value.regime in query.regimes)
        and (not value.level or query.wants_number(value.regime, float(value.level)))
        and (not query.methods or is_method(value, query.methods))
        and value.metric in query.metrics
    ]


def is_method(value: PublishedValue, names: Iterable[str]) -> bool:
    """Whether the value's method has one of the names, ours or the paper's."""
    ours = value.our_method.name if value.our_method else None
    return any(name in (ours, value.paper_method) for name in names)
