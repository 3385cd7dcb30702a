"""The metrics of the protocol: one table, one entry for each metric.

To add a metric, add an entry to `METRICS`. Runs, boards, exported files, bootstrap intervals and reports
read the table. NumPy only, so that `compare` never imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ssmlbench.protocol.decisions import RULES, Parameters, decide
from ssmlbench.protocol.matrices import as_labels, as_scores, blocks, by_label, check_choice, count

Values = NDArray[np.float64]

SMALL_COLUMN = 4096
"""Rows below which a column is simply sorted."""
FEW_LEVELS = 16
"""Levels up to which each is simply compared with all entries."""
MOST_EXACT = 2.0**64
"""Entries below it can be cut into cells: the bits of a wider range overflow."""

CONVENTIONS = {
    "default": "",
    "released": "Released conventions: labels without a test positive count 0, One loss ties favour "
    "the model.",
}
"""By name, the note of a board under it. What labels without a test positive and ties count.

default   such labels are left out of means over labels (NaN if none is left); a tie at a row's top
          counts its expected value
released  such labels count 0; a tie at a row's top counts as right if any of the tied labels is
"""


class Predictions:
    """What a metric reads: scores, truth and label sets of N rows × K labels, and row weights.

    weights: D × N, how often each row counts in each of D test sets; without them D is 1 and every
    row counts once. A metric gives one value for each of the D test sets.
    """

    def __init__(
        self,
        scores: ArrayLike,
        truth: ArrayLike,
        predicted: ArrayLike | None = None,
        weights: Values | None = None,
    ) -> None:
        self.scores = as_scores(scores)
        self.truth = as_labels("truth", truth, self.scores)
        self._predicted = (
            None if predicted is None else as_labels("predicted", predicted, self.scores)
        )
        self.weights = weights

    @property
    def predicted(self) -> NDArray[np.bool_]:
        """The label sets (N × K) of the decision rule."""
        if self._predicted is None:
            raise ValueError("a metric that reads label sets must have uses_decision=True")
        return self._predicted

    @cached_property
    def rows(self) -> Values:
        """The number of rows (D)."""
        if self.weights is None:
            return np.array([float(len(self.scores))])
        rows: Values = self.weights.sum(axis=1)
        return rows

    @cached_property
    def hit(self) -> NDArray[np.bool_]:
        """Which true labels are predicted (N × K)."""
        return self.truth & self.predicted

    @cached_property
    def positives(self) -> Values:
        """True labels (D × K)."""
        return self.sum_over_rows(self.truth)

    @cached_property
    def claimed(self) -> Values:
        """Predicted labels (D × K)."""
        return self.sum_over_rows(self.predicted)

    @cached_property
    def hits(self) -> Values:
        """True labels that are predicted (D × K)."""
        return self.sum_over_rows(self.hit)

    @cached_property
    def weights_by_row(self) -> Values | None:
        """The weights as N × D: the sums over a label's rows then read whole rows."""
        return None if self.weights is None else np.ascontiguousarray(self.weights.T)

    def _weighted(self, values: NDArray[Any]) -> Values:
        assert self.weights is not None
        if values.ndim == 1:
            total: Values = self.weights @ values.astype(np.float64)
            return total
        total = np.empty((len(self.weights), values.shape[1]))
        for part in blocks(values.shape[1], len(values)):
            total[:, part] = self.weights @ values[:, part].astype(np.float64)
        return total

    def sum_over_rows(self, values: NDArray[Any]) -> Values:
        """The sum over rows of an N × K matrix (D × K) or of N values (D)."""
        total: Values
        if self.weights is not None:
            total = self._weighted(values)
        elif values.dtype == np.bool_:
            total = count(values, axis=0)[None].astype(np.float64)
        else:
            total = np.asarray(values.sum(axis=0, dtype=np.float64))[None]
        return total

    def sum_over_entries(self, mask: NDArray[np.bool_]) -> Values:
        """The number of True over all rows and labels (D)."""
        if self.weights is None:
            return np.array([float(np.count_nonzero(mask))])
        return self.sum_over_rows(count(mask, axis=1))

    def mean_over_labels(self, values: Values, convention: str) -> Values:
        """The mean over labels of D × K values, with the convention for labels without a positive."""
        has_positive = self.positives > 0
        total: Values = np.where(has_positive, values, 0).sum(axis=1)
        if convention == "released":
            mean: Values = total / values.shape[1]
            return mean
        labels = has_positive.sum(axis=1)
        return np.where(labels > 0, total / np.maximum(labels, 1), np.nan)

    @cached_property
    def average_precision(self) -> Values:
        """Step-wise average precision per label (D × K), tied scores grouped; NaN without a positive."""
        labels: list[Values] = []
        for part in blocks(self.scores.shape[1], len(self.scores)):
            columns, positive = by_label(self.scores[:, part]), by_label(self.truth[:, part])
            # one pass per label stays in cache
            labels += [
                _average_precision(column, own, self.weights_by_row)
                for column, own in zip(columns, positive, strict=True)
            ]
        if self.weights is None:
            return np.concatenate(labels)[None]
        return np.stack([np.broadcast_to(label, len(self.weights)) for label in labels], axis=1)


def _average_precision(
    column: NDArray[Any], positive: NDArray[np.bool_], weights: Values | None
) -> Values:
    """Mean over a label's positives of (positives reaching its score) / (rows reaching it)."""
    own = column.take(np.flatnonzero(positive))  # half the time of `compress`, which branches
    if not own.size:
        return np.array([np.nan])
    own.sort()
    fresh = np.ones(own.size, np.bool_)
    np.not_equal(own[1:], own[:-1], out=fresh[1:])
    first = np.flatnonzero(fresh)
    levels = own.take(first)  # the distinct scores of positives, ascending
    if weights is None:
        tied = np.append(first[1:], own.size) - first
        precision = (tied * (own.size - first) / reaching(column, levels)).sum()
        return np.array([precision / own.size])
    rows = np.argsort(column)
    start = np.searchsorted(column, levels, sorter=rows)
    group = _sums(rows[positive[rows]], first, weights)
    reach, hits = (sums[::-1].cumsum(axis=0)[::-1] for sums in (_sums(rows, start, weights), group))
    total = group.sum(axis=0)
    precision = (group * hits / np.maximum(reach, 1)).sum(axis=0)
    return np.where(total > 0, precision / np.maximum(total, 1), np.nan)


def reaching(column: NDArray[Any], levels: NDArray[Any]) -> NDArray[np.intp]:
    """How many entries of a column reach each level; the levels ascend, and are entries themselves.

    Entries are put into narrow cells, most of which hold no level or one, so that one comparison says
    how many levels an entry passes. Only the few entries that pass a second level of their cell are
    sorted: a third of the time of sorting all.
    """
    rows = len(column)
    if len(levels) <= FEW_LEVELS:
        return np.array([np.count_nonzero(column >= level) for level in levels])
    low, high = column.min(), column.max()
    bits = {np.dtype(np.float32): np.int32, np.dtype(np.float64): np.int64}.get(column.dtype)
    if rows < SMALL_COLUMN or bits is None or low < 0 or high >= MOST_EXACT:
        below: NDArray[np.intp] = np.searchsorted(np.sort(column), levels)
        return rows - below

    # The bits of a positive float ascend with it, like its logarithm. The offset keeps the cells from
    # being used up by zero and the tiniest numbers. Rounding keeps the order.
    offset = high * column.dtype.type(2.0**-20)
    first, last = map(int, (np.array([low, high]) + offset).view(bits))
    shift = (2 * (last - first) // rows).bit_length()

    def cell_of(values: NDArray[Any]) -> NDArray[np.intp]:
        place = (values + offset).view(bits)
        place -= first
        place >>= shift
        cell: NDArray[np.intp] = place.astype(np.intp, copy=False)
        return cell

    cell, at = cell_of(column), cell_of(levels)
    held = np.bincount(at, minlength=((last - first) >> shift) + 1)
    passed = (held.cumsum() - held).take(cell)  # the levels in lower cells
    # no score reaches the NaN after the last level
    following = np.append(levels, column.dtype.type(np.nan))
    passed += column >= following.take(passed)
    more = np.flatnonzero(column >= following.take(passed))
    passed[more] = levels.searchsorted(np.sort(column.take(more)), side="right")
    reached: NDArray[np.intp] = np.bincount(passed, minlength=len(following))[:0:-1].cumsum()[::-1]
    return reached


def _sums(rows: NDArray[np.intp], start: NDArray[np.intp], weights: Values) -> Values:
    """The summed weights of rows[start[i] : start[i + 1]] for every i."""
    from scipy.sparse import csr_array

    rows, bounds = rows[start[0] :], np.append(start, len(rows)) - start[0]
    chosen = csr_array((np.ones(len(rows)), rows, bounds), shape=(len(start), len(weights)))
    sums: Values = chosen @ weights
    return sums


# ------------------------------------------------------------------------------- the metrics


@dataclass(frozen=True)
class Metric:
    """One metric.

    value: (predictions, convention) → its D values. Row weights must count: `Predictions` has sums and
    means that do.
    """

    key: str
    title: str
    higher_is_better: bool
    uses_decision: bool
    value: Callable[[Predictions, str], Values]


def _micro_f1(p: Predictions, convention: str) -> Values:
    """2TP / (2TP + FP + FN) over all entries; 0 where nothing is true and nothing predicted."""
    either = p.sum_over_entries(p.predicted) + p.sum_over_entries(p.truth)
    return 2 * p.sum_over_entries(p.hit) / np.maximum(either, 1)


def _macro_f1(p: Predictions, convention: str) -> Values:
    return p.mean_over_labels(2 * p.hits / np.maximum(p.claimed + p.positives, 1), convention)


def _mean_ap(p: Predictions, convention: str) -> Values:
    return p.mean_over_labels(p.average_precision, convention)


def _hamming(p: Predictions, convention: str) -> Values:
    """The share of entries that are wrong: (FP + FN) / (N · K)."""
    wrong = p.sum_over_entries(p.predicted != p.truth)
    hamming: Values = wrong / (p.rows * p.scores.shape[1])
    return hamming


def _one_loss(p: Predictions, convention: str) -> Values:
    """The share of rows whose top label is wrong; a row with no true label counts as wrong."""
    rows, labels = p.scores.shape
    # `reduceat` takes half the time of a maximum along short rows
    best = np.maximum.reduceat(p.scores.ravel(), np.arange(0, rows * labels, labels))
    top = p.scores == best[:, None]
    if np.count_nonzero(top) == rows:  # no ties
        return 1 - p.sum_over_entries(top & p.truth) / p.rows
    right = count(top & p.truth, axis=1)
    # of tied labels: whether any is right, or the expected value of a random choice among them
    released = convention == "released"
    share = (right > 0).astype(np.float64) if released else right / count(top, axis=1)
    return 1 - p.sum_over_rows(share) / p.rows


_ENTRIES = (
    Metric("micro_f1", "Micro-F1", True, True, _micro_f1),
    Metric("macro_f1", "Macro-F1", True, True, _macro_f1),
    Metric("map", "mAP", True, False, _mean_ap),
    Metric("hamming", "Hamming loss", False, True, _hamming),
    Metric("one_loss", "One loss", False, False, _one_loss),
)
METRICS = {metric.key: metric for metric in _ENTRIES}
"""Every metric by its key."""


# ------------------------------------------------------------------------------- evaluation


def average_precision(scores: ArrayLike, truth: ArrayLike) -> Values:
    """Step-wise average precision per label (K), tied scores grouped; NaN without a positive."""
    precisions: Values = Predictions(scores, truth).average_precision[0]
    return precisions


def evaluate(
    scores: ArrayLike, truth: ArrayLike, predicted: ArrayLike, *, convention: str = "default"
) -> dict[str, float]:
    """All `METRICS` of scores and label sets, under one of `CONVENTIONS`."""
    check_choice("convention", convention, tuple(CONVENTIONS))
    predictions = Predictions(scores, truth, predicted)
    return {key: float(metric.value(predictions, convention)[0]) for key, metric in METRICS.items()}


def evaluate_rules(
    scores: ArrayLike, truth: ArrayLike, parameters: Parameters
) -> dict[str, dict[str, dict[str, float]]]:
    """All metrics by decision rule and by convention; of the rules whose parameters are given."""
    bare = Predictions(scores, truth)
    without_rule = {
        convention: {
            key: float(metric.value(bare, convention)[0])
            for key, metric in METRICS.items()
            if not metric.uses_decision
        }
        for convention in CONVENTIONS
    }
    values: dict[str, dict[str, dict[str, float]]] = {}
    for name, rule in RULES.items():
        if not parameters.keys() >= set(rule.parameters):
            continue
        predicted = decide(bare.scores, name, truth=bare.truth, parameters=parameters)
        decided = Predictions(bare.scores, bare.truth, predicted)
        values[name] = {
            convention: {
                key: float(metric.value(decided, convention)[0])
                if metric.uses_decision
                else without_rule[convention][key]
                for key, metric in METRICS.items()
            }
            for convention in CONVENTIONS
        }
    return values


def empty_labels(truth: ArrayLike) -> int:
    """Number of labels with no positive row."""
    t = np.asarray(truth)
    return int((~as_labels("truth", t, t).any(axis=0)).sum())
