"""The results of a run for each label: support, precision, recall, F1, AP, threshold."""

from __future__ import annotations

import math
from typing import Any, TypedDict

import numpy as np

from ssmlbench.protocol.decisions import Parameters, decide
from ssmlbench.protocol.metrics import average_precision

RULE = "calibrated"
"""The decision rule behind precision, recall and F1."""

LabelValues = list[float | None]


class PerLabel(TypedDict):
    """One entry for each label, in the data set's order; None where a number is not defined."""

    rule: str
    label: list[str]
    support: list[int]  # positives among the judged rows
    precision: LabelValues
    recall: LabelValues
    f1: LabelValues
    average_precision: LabelValues
    threshold: LabelValues  # None: no score reaches it


COLUMNS = tuple(name for name in PerLabel.__annotations__ if name != "rule")
"""What there is of each label, its name first."""


def results_per_label(
    scores: Any, truth: Any, parameters: Parameters, names: list[str]
) -> PerLabel:
    """The values of every label of N × K scores and true labels."""
    predicted = decide(scores, RULE, truth=truth, parameters=parameters)
    hits = (predicted & truth).sum(axis=0)
    chosen, support = predicted.sum(axis=0), truth.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision, recall = hits / chosen, hits / support
        f1 = np.where(support + chosen > 0, 2 * hits / (support + chosen), np.nan)
    return {
        "rule": RULE,
        "label": list(names),
        "support": [int(count) for count in support],
        "precision": _rounded(precision),
        "recall": _rounded(recall),
        "f1": _rounded(f1),
        "average_precision": _rounded(average_precision(scores, truth)),
        "threshold": _rounded(parameters["thresholds"]),
    }


def _rounded(values: Any) -> LabelValues:
    """Four decimals, so that the files of a hundred thousand runs stay small."""
    return [round(float(value), 4) if math.isfinite(value) else None for value in values]
