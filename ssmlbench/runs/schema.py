"""The schema of result.json and spec.json, with the checks of reading.

docs/results.md describes every field. Reading is tolerant: unknown result fields are ignored, fields
that were added later may be absent. All other fields are checked; a `SchemaError` names a wrong one.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Any, NotRequired, TypedDict, cast

from ssmlbench.core.checksums import FIELD, FileFacts, checksum_holds
from ssmlbench.core.errors import UserError
from ssmlbench.core.hyperparameters import alternatives
from ssmlbench.core.names import is_path_part
from ssmlbench.core.spec import NUMBERS, OPTIONS, REGIME_NUMBERS, RunSpec
from ssmlbench.protocol.metrics import METRICS
from ssmlbench.protocol.regimes import REGIMES
from ssmlbench.runs.json_types import wrong_type
from ssmlbench.runs.per_label import COLUMNS, PerLabel

RESULT_VERSION = 3
"""Raised when a field of result.json changes its meaning. Results without a version are version 1.

Since 3 a result has the checksums of itself and of the files beside it.
"""

MARGIN = 1e-9
"""How far rounding may carry a metric out of [0, 1]."""

COST_FIELDS = ("seconds", "seconds_per_epoch", "peak_memory_mb")

MetricValues = dict[str, dict[str, dict[str, float]]]
"""Decision rule → convention → metric → value."""


class MadeWith(TypedDict, total=False):
    """The machine and the versions that made a run."""

    ssmlbench: str
    torch: str
    python: str
    device: str
    gpu: str
    cpu_kernels: str  # of torch and BLAS; others give other last bits
    precision: str
    nondeterministic: list[str]
    threads: int
    micro_batch: int  # rows in the encoder at a time; not there: all of a step
    finished: str


class DataFacts(TypedDict):
    """The size of the data set, and whether it is the published one."""

    rows: dict[str, int]
    labels: int
    unlike_published: NotRequired[list[str]]  # differences to the data set that papers describe


class OtherFields(TypedDict):
    """The fields of a result.json beside the spec and its numbers; older versions lack some."""

    version: NotRequired[int]
    hash: NotRequired[str]
    observation: NotRequired[str]
    selected_epoch: NotRequired[int]
    steps: NotRequired[int]
    uses: NotRequired[str]  # "labelled rows" or "both pools": the training rows it learnt from
    labels_without_test_positive: NotRequired[int]
    per_label: NotRequired[PerLabel]
    notes: NotRequired[list[str]]
    made_with: NotRequired[MadeWith]
    data: NotRequired[DataFacts]
    sources: NotRequired[dict[str, Any]]  # core/commands.py: what a command like its own needs
    diverged: NotRequired[str]
    files: NotRequired[dict[str, FileFacts]]  # size and checksum of the files beside it
    checksum: NotRequired[str]  # of this object


class Result(OtherFields):
    """One result.json."""

    spec: NotRequired[dict[str, Any]]  # not there in what `read_finished` returns
    metrics: MetricValues
    cost: dict[str, float]  # by COST_FIELDS


class SchemaError(ValueError):
    """A file of ours that this version cannot read; the text is the reason, in one line."""


def parse_result(values: object) -> tuple[RunSpec, Result]:
    """The spec and the checked result of a result.json's content."""
    if not isinstance(values, dict) or "spec" not in values or "metrics" not in values:
        raise SchemaError(f"not a result of ssmlbench: it has no spec or no metrics; {REPEATS_IT}")
    if is_damaged(values):
        raise SchemaError(DAMAGED)
    try:
        _check_mapping("made_with", values.get("made_with", {}))
        spec = parse_spec(with_precision(values["spec"], values.get("made_with", {})))
        check_metrics(values["metrics"])
        _check_numbers("cost", values.get("cost", {}))
        _check_others(values)
    except SchemaError as error:
        raise SchemaError(f"{error}{_written_by(values)}") from None
    values.setdefault("cost", {})
    return spec, cast(Result, values)


def _check_others(values: dict[str, Any]) -> None:
    """Check the fields that no other function checks; None means that a field is not there."""
    if wrong := wrong_type(values, OtherFields):
        raise SchemaError(wrong)
    known = {name: values.get(name, "") for name in typing.get_type_hints(OtherFields)}
    for name in [name for name, value in known.items() if value is None]:
        del values[name]
    for name in ("made_with", "data"):
        if name in values:
            values[name] = {k: v for k, v in values[name].items() if v is not None}
    per_label = values.get("per_label")
    if per_label is not None:
        lengths = {len(per_label.get(name) or ()) for name in COLUMNS}
        if len(lengths) > 1 or "rule" not in per_label:
            raise SchemaError("per_label has columns of different lengths, or lacks some")


MISPLACED = "the result of another run; the same `ssmlbench run` makes this one again"
REPEATS_IT = "the same `ssmlbench run` repeats it"
DAMAGED = f"damaged, its content is not what was written; {REPEATS_IT}"


def is_damaged(values: Mapping[str, Any]) -> bool:
    """Whether a result lacks the checksum that its version has, or does not match it."""
    version = values.get("version", 1)
    lacks = isinstance(version, int) and version >= 3 and FIELD not in values
    return lacks or not checksum_holds(values)


def is_of_folder(values: Mapping[str, Any], name: str) -> bool:
    """Whether a result has the hash of its folder's name, `<seed>-<hash>`.

    True if one of the two has no hash: an older result, or a renamed folder.
    """
    named = re.fullmatch(r"\d+-([0-9a-f]{12})", name)
    return named is None or values.get("hash", named[1]) == named[1]


def with_precision(spec: Any, made_with: Mapping[str, Any]) -> Any:
    """The spec with the precision that the run recorded, if it is older than that field."""
    recorded = made_with.get("precision")
    if isinstance(spec, dict) and recorded:
        return {"precision": recorded, **spec}
    return spec


def parse_spec(values: object) -> RunSpec:
    """The spec that a spec.json or the `spec` of a result holds."""
    if not isinstance(values, dict):
        raise SchemaError("its spec is not a JSON object")
    expected = _spec_fields()
    if unknown := values.keys() - expected.keys():
        raise SchemaError(
            f"its spec has fields that are unknown here: {', '.join(sorted(unknown))}"
        )
    for name, value in values.items():
        accepted = expected[name]
        if type(value) not in accepted.types or (accepted.values and value not in accepted.values):
            raise SchemaError(f"its spec has {name} = {value!r}, expected {accepted.text}")
    absent = [name for name, field in expected.items() if field.required and name not in values]
    if absent:
        raise SchemaError(f"its spec lacks {', '.join(absent)}")
    _check_spec_numbers(values)
    for name in ("dataset", "method"):
        if not is_path_part(values[name]):
            raise SchemaError(f"its spec has {name} = {values[name][:60]!r}, which is not a name")
    spec = RunSpec.from_dict(values)
    if spec.regime not in REGIMES:
        raise SchemaError(f"its regime {spec.regime} is unknown here")
    if spec.regime in REGIME_NUMBERS and spec.regime_number is None:
        raise SchemaError(f"its spec lacks {REGIME_NUMBERS[spec.regime].name}")
    try:
        spec.variant  # noqa: B018  # needs config to have what `changed` names, tuned what it shows
    except KeyError as error:
        raise SchemaError(f"its spec lacks {error} in config or tuned") from None
    return spec


def _check_spec_numbers(values: Mapping[str, Any]) -> None:
    """Numbers that are finite; the seed and the regimes' numbers within their bounds."""
    for name, value in values.items():
        if type(value) is float and not math.isfinite(value):
            raise SchemaError(f"its spec has {name} = {value}")
    for option in (*NUMBERS, OPTIONS["seed"]):
        try:
            option.check(values.get(option.name))
        except UserError as error:
            raise SchemaError(f"its spec has {error}") from None


class _SpecField(typing.NamedTuple):
    types: frozenset[type]
    values: tuple[object, ...]  # the allowed ones; empty where any will do
    text: str
    required: bool


@functools.cache
def _spec_fields() -> dict[str, _SpecField]:
    """The allowed JSON values of each field of a spec, from the types that RunSpec declares."""
    hints = typing.get_type_hints(RunSpec)
    return {
        field.name: _SpecField(
            frozenset(_json_types(hints[field.name])),
            tuple(_literal_values(hints[field.name])),
            _hint_text(hints[field.name]),
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(RunSpec)
    }


def _json_types(hint: Any) -> list[type]:
    types: list[type] = []
    for part in alternatives(hint):
        origin = typing.get_origin(part) or part
        if origin is typing.Literal:
            types += [type(value) for value in typing.get_args(part)]
        elif origin is float:
            types += [float, int]
        elif origin is tuple:
            types += [list, tuple]
        elif isinstance(origin, type) and issubclass(origin, Mapping):
            types.append(dict)
        else:
            types.append(origin)
    return types


def _literal_values(hint: Any) -> list[object]:
    values: list[object] = []
    for part in alternatives(hint):
        if typing.get_origin(part) is typing.Literal:
            values += typing.get_args(part)
        elif part is type(None):
            values.append(None)
        else:
            return []
    return values


def _hint_text(hint: Any) -> str:
    names = [repr(value) for value in _literal_values(hint)]
    return " or ".join(names or sorted({kind.__name__ for kind in _json_types(hint)}))


def metric_entries(metrics: MetricValues) -> Iterator[tuple[tuple[str, str, str], float]]:
    """Yield every value with its decision rule, convention and metric."""
    for rule, by_convention in metrics.items():
        for convention, values in by_convention.items():
            for metric, value in values.items():
                yield (rule, convention, metric), value


def check_metrics(metrics: object) -> MetricValues:
    """Numbers by decision rule, convention and metric, or a SchemaError."""
    _check_mapping("metrics", metrics)
    for rule, by_convention in cast(dict[str, object], metrics).items():
        _check_mapping(f"metrics of {rule}", by_convention)
        for convention, values in cast(dict[str, object], by_convention).items():
            _check_numbers(f"metrics of {rule}, {convention}", values)
            for name, value in cast(dict[str, float], values).items():
                if name in METRICS and not (-MARGIN <= value <= 1 + MARGIN or math.isnan(value)):
                    raise SchemaError(f"metrics of {rule}: {name} is {value:g}, expected 0 to 1")
    return cast(MetricValues, metrics)


def _check_numbers(field: str, values: object) -> None:
    _check_mapping(field, values)
    for name, value in cast(dict[str, object], values).items():
        if type(value) is not float and type(value) is not int:
            raise SchemaError(f"{field}: {name} is {value!r}, expected a number")


def _check_mapping(field: str, values: object) -> None:
    if type(values) is not dict:
        raise SchemaError(f"{field} is not a JSON object")


def _written_by(values: Mapping[str, Any]) -> str:
    """Who wrote an unreadable result, where that is known: the usual reason is another version."""
    version = values.get("version", 1)
    if isinstance(version, int) and version > RESULT_VERSION:
        return f" (a result of version {version}; this ssmlbench reads up to {RESULT_VERSION})"
    made_with = values.get("made_with")
    if isinstance(made_with, dict) and "ssmlbench" in made_with:
        return f" (written by ssmlbench {made_with['ssmlbench']})"
    return ""
