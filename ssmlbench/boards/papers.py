"""The facts about a paper besides its numbers, read from leaderboards/published/<paper>.toml.

The file maps the paper's names of metrics, data sets and methods to ours, so that a new paper needs
no Python. Its numbers are in the CSV file of the same name (see published.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import RunSpec
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.core.toml_text import read_toml
from ssmlbench.protocol.metrics import METRICS


@dataclass(frozen=True)
class OurMethod:
    """Our method for a row of a paper, with the hyper-parameters that make them equal."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    varies: frozenset[str] = frozenset()  # what the paper sets for each data set

    def matches(self, spec: RunSpec) -> bool:
        """Whether a run is this method: these settings, other hyper-parameters at their defaults.

        Those that the paper sets for each data set may have any value.
        """
        return (
            spec.method == self.name
            and not spec.tuned
            and set(spec.changed) <= {*self.settings, *self.varies}
            and all(
                key in spec.config and spec.config[key] == value
                for key, value in self.settings.items()
            )
        )

    @property
    def label(self) -> str:
        """The name as boards write it, e.g. `bbam (balance=false)`."""
        return RunSpec(
            self.name, "", config=dict(self.settings), changed=tuple(self.settings)
        ).variant


@dataclass(frozen=True)
class Interval:
    """A range in which a number lies, both ends included."""

    low: float
    high: float

    def meets(self, other: Interval) -> bool:
        """Whether the two ranges have a number in common."""
        return self.low <= other.high and other.low <= self.high

    @property
    def middle(self) -> float:
        """The number halfway between the ends."""
        return (self.low + self.high) / 2


@dataclass(frozen=True)
class LabelDensity:
    """The share of positives in a data set's label matrix, within the rounding of its source."""

    interval: Interval
    source: str


@dataclass(frozen=True, eq=False)
class Paper:
    """One paper. Its mappings go from the paper's names to ours."""

    key: str  # the files' name without extension
    name: str
    decision_rule: str  # as the paper or its released code describes it
    metrics: Mapping[str, str]
    datasets: Mapping[str, str]
    methods: Mapping[str, OurMethod]
    other_methods: frozenset[str] = frozenset()  # the paper's names of methods that we do not have
    title: str = ""
    venue: str = ""
    url: str = ""
    setup: str = ""  # encoder and input size
    methods_selected_on_test: frozenset[str] = frozenset()
    datasets_selected_on_test: frozenset[str] = frozenset()
    label_density: Mapping[str, LabelDensity] = field(default_factory=dict)  # by our data set

    @property
    def citation(self) -> str:
        """`BBAM ("Semi-Supervised …", NeurIPS 2024, https://…)`, with the parts that are known."""
        title = f'"{self.title}"' if self.title else ""
        known = ", ".join(part for part in (title, self.venue, self.url) if part)
        return f"{self.name} ({known})" if known else self.name

    def selected_on_test(self, method: str, dataset: str) -> bool:
        """Whether the paper's code selects the epoch on the test set; by the paper's names."""
        return method in self.methods_selected_on_test and dataset in self.datasets_selected_on_test


def read_paper(file: Path) -> Paper:
    """Read one TOML file; a UserError names the file and the key, or the line, that is wrong."""
    return _PaperFile(file, read_toml(file)).paper()


_TEXTS = ("name", "decision_rule", "title", "venue", "url", "setup")
_TABLES = ("metrics", "datasets", "methods", "selected_on_test", "label_density")
_REQUIRED = ("name", "decision_rule", "metrics", "datasets", "methods")


class _PaperFile:
    """The checks of one file, which all name it in their errors."""

    def __init__(self, file: Path, values: Mapping[str, Any]) -> None:
        self.file = file
        self.values = values

    def error(self, text: str) -> UserError:
        return UserError(f"{self.file}: {text}")

    def paper(self) -> Paper:
        self.check_keys(self.values, (*_TEXTS, "other_methods", *_TABLES), "")
        for key in _REQUIRED:
            if key not in self.values:
                raise self.error(f"{key} is missing")
        for key in _TEXTS:
            self.check(self.values.get(key, ""), str, key, "a text")
        for key in _TABLES:
            self.check(self.values.get(key, {}), dict, f"[{key}]", "a table")
        datasets = self.names("datasets")
        selected = self.values.get("selected_on_test", {})
        self.check_keys(selected, ("methods", "datasets"), "[selected_on_test] ")
        methods = {name: self.method(name, v) for name, v in self.values["methods"].items()}
        other = self.texts(self.values.get("other_methods", []), "other_methods")
        if both := sorted(set(methods) & other):
            raise self.error(f"{both[0]!r} is in [methods] and in other_methods; keep one")
        texts = {key: " ".join(self.values.get(key, "").split()) for key in _TEXTS}
        return Paper(
            key=self.file.stem,
            metrics=self.metrics(),
            datasets=datasets,
            methods=methods,
            other_methods=other,
            methods_selected_on_test=self.listed(selected, "methods", {*methods, *other}),
            datasets_selected_on_test=self.listed(selected, "datasets", datasets),
            label_density=self.densities(datasets),
            **texts,
        )

    def check(self, value: object, kind: type, where: str, expected: str) -> None:
        if not isinstance(value, kind):
            raise self.error(f"{where}: must be {expected}, not {value!r}")

    def check_keys(self, values: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
        for key in values:
            if key not in known:
                raise self.error(f"{where}{key}: no such key.{did_you_mean(key, known)}")

    def texts(self, value: object, where: str) -> frozenset[str]:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.error(f"{where}: must be a list of texts, not {value!r}")
        return frozenset(value)

    def listed(self, values: Mapping[str, Any], key: str, known: Iterable[str]) -> frozenset[str]:
        """The names under `key`, each one of the paper's."""
        found = self.texts(values.get(key, []), f"[selected_on_test] {key}")
        for name in sorted(found):
            if name not in known:
                raise self.error(
                    f"[selected_on_test] {key}: {name!r} is not in [{key}]."
                    f"{did_you_mean(name, known)}"
                )
        return found

    def names(self, table: str) -> dict[str, str]:
        for name, ours in self.values[table].items():
            self.check(ours, str, f"[{table}] {name!r}", "a text")
        return dict(self.values[table])

    def metrics(self) -> dict[str, str]:
        found = self.names("metrics")
        for name, ours in found.items():
            if ours not in METRICS:
                raise self.error(
                    f"[metrics] {name!r}: we have no metric {ours!r}.{did_you_mean(ours, METRICS)}"
                )
        return found

    def method(self, name: str, value: object) -> OurMethod:
        where = f"[methods] {name!r}"
        if isinstance(value, str):
            return OurMethod(value)
        if not isinstance(value, dict):
            raise self.error(f'{where}: must be a text or {{ method = "…", settings = {{ … }} }}')
        self.check_keys(value, ("method", "settings", "varies"), f"{where} ")
        self.check(value.get("method"), str, f"{where} method", "a text")
        self.check(value.get("settings", {}), dict, f"{where} settings", "a table")
        varies = self.texts(value.get("varies", []), f"{where} varies")
        return OurMethod(value["method"], value.get("settings", {}), varies)

    def densities(self, datasets: Mapping[str, str]) -> dict[str, LabelDensity]:
        values = dict(self.values.get("label_density", {}))
        source = values.pop("source", self.file.stem)
        self.check(source, str, "[label_density] source", "a text")
        densities = {}
        for name, value in values.items():
            where = f"[label_density] {name!r}"
            if name not in datasets:
                raise self.error(f"{where}: not in [datasets].{did_you_mean(name, datasets)}")
            self.check(value, dict, where, "a table")
            self.check_keys(value, ("positives_per_row", "labels"), f"{where} ")
            densities[datasets[name]] = LabelDensity(self.density(value, where), source)
        return densities

    def density(self, value: Mapping[str, Any], where: str) -> Interval:
        """`1.44` positives of 20 labels, rounded to 0.01: 1.435 / 20 to 1.445 / 20."""
        digits, labels = value.get("positives_per_row"), value.get("labels")
        if not isinstance(labels, int) or labels < 1:
            raise self.error(f"{where} labels: must be a whole number above 0, not {labels!r}")
        self.check(digits, str, f"{where} positives_per_row", 'the digits as printed, e.g. "1.44"')
        try:
            printed = Decimal(str(digits))
        except InvalidOperation:
            raise self.error(f"{where} positives_per_row: {digits!r} is not a number") from None
        exponent = printed.as_tuple().exponent
        if not isinstance(exponent, int):
            raise self.error(f"{where} positives_per_row: {digits!r} is not a number")
        half = Decimal("0.5").scaleb(exponent)
        return Interval(float(printed - half) / labels, float(printed + half) / labels)
