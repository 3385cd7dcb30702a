"""The five metrics of the protocol and the rules that turn scores into label sets.

NumPy only, so that `compare` never imports torch. Nothing here trains, selects or stores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

DECISIONS = ("calibrated", "threshold", "top-k")


@dataclass(frozen=True)
class Metric:
    key: str
    title: str
    higher_is_better: bool
    uses_decision: bool


_ALL = (
    Metric("micro_f1", "Micro-F1", higher_is_better=True, uses_decision=True),
    Metric("macro_f1", "Macro-F1", higher_is_better=True, uses_decision=True),
    Metric("map", "mAP", higher_is_better=True, uses_decision=False),
    Metric("hamming", "Hamming loss", higher_is_better=False, uses_decision=True),
    Metric("one_loss", "One loss", higher_is_better=False, uses_decision=False),
)
METRICS = {metric.key: metric for metric in _ALL}


def decide(
    scores: ArrayLike,
    decision: str,
    *,
    truth: ArrayLike | None = None,
    thresholds: ArrayLike | None = None,
) -> NDArray[np.bool_]:
    """The label sets (N × K) that one of `DECISIONS` reads from the scores (N × K).

    `top-k` needs `truth` for each row's k and gives ties to the lower label index; `calibrated`
    needs `thresholds`, one per label, from `calibrated_thresholds`.
    """
    s = _scores(scores)
    _one_of("decision", decision, DECISIONS)
    if decision == "threshold":
        return s > 0.5
    if decision == "calibrated":
        if thresholds is None:
            raise ValueError("decision 'calibrated' needs thresholds=, one per label")
        return s >= _per_label("thresholds", thresholds, s)
    if truth is None:
        raise ValueError("decision 'top-k' needs truth=, for the number of labels of each row")
    k = _count(_binary("truth", truth, s), axis=1)
    # A value sort is several times faster than an argsort. Only rows with ties at the k-th score,
    # or with k = 0 and so no k-th score, then need their tied labels counted off.
    at = np.minimum(s.shape[1] - k, s.shape[1] - 1)
    cut = np.take_along_axis(np.sort(s, axis=1), at[:, None], axis=1)
    chosen = s >= cut
    over = np.flatnonzero(_count(chosen, axis=1) > k)
    above, tied = s[over] > cut[over], s[over] == cut[over]
    room = k[over] - _count(above, axis=1)
    chosen[over] = above | (tied & (tied.cumsum(axis=1) <= room[:, None]))
    return chosen


def calibrated_thresholds(train_scores: ArrayLike, prior: ArrayLike) -> NDArray[np.floating]:
    """Per label, the score that round(prior · n) of the n training rows reach; +inf for none.

    Rows tied at the threshold are all predicted, so ties can push the rate above the prior.
    """
    s = _scores(train_scores)
    p = _per_label("prior", prior, s).astype(np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("prior must lie in [0, 1] for every label")
    rank = np.rint(p * len(s)).astype(np.intp)
    at = np.minimum(len(s) - rank, len(s) - 1)
    reached = np.take_along_axis(np.sort(s, axis=0), at[None], axis=0)[0]
    # float scores keep their type; integers need one that has an inf
    reached = reached.astype(np.result_type(s, np.float16), copy=False)
    return np.where(rank > 0, reached, reached.dtype.type(np.inf))


def average_precision(scores: ArrayLike, truth: ArrayLike) -> NDArray[np.float64]:
    """Step-wise average precision per label (K), tied scores grouped; NaN without a positive."""
    s = _scores(scores)
    positive = _by_label(_binary("truth", truth, s))
    ap = np.full(len(positive), np.nan)
    # AP is the mean over a label's positives of (positives reaching its score) / (rows reaching
    # it): a sort of values and a search for the few positives. One pass per label stays in cache;
    # an argsort of the whole matrix alone would take twice as long.
    for label, column in enumerate(_by_label(s)):
        own = np.sort(column.compress(positive[label]))
        if own.size:
            column.sort()
            reach = len(column) - np.searchsorted(column, own)
            first = np.flatnonzero(np.diff(reach, prepend=0))  # where each group of ties begins
            group = np.diff(first, append=own.size)
            ap[label] = (group * (own.size - first) / reach[first]).sum() / own.size
    return ap


def one_loss(scores: ArrayLike, truth: ArrayLike, ties: str = "neutral") -> float:
    """Share of rows whose top label is wrong; a row with no true label counts as wrong.

    Where labels tie at the maximum, `neutral` takes the expected value under a uniformly random
    choice among them, and `lenient` forgives the row if any of them is true.
    """
    s = _scores(scores)
    _one_of("ties", ties, ("neutral", "lenient"))
    top = s == s.max(axis=1, keepdims=True)
    right = top & _binary("truth", truth, s)
    if ties == "lenient":
        return float(1 - right.any(axis=1).mean())
    return float(1 - (_count(right, axis=1) / _count(top, axis=1)).mean())


def evaluate(
    scores: ArrayLike, truth: ArrayLike, predicted: ArrayLike, *, convention: str = "default"
) -> dict[str, float]:
    """The five `METRICS`; F1 and Hamming loss read the label sets `predicted`, the others `scores`.

    `default` leaves labels without a test positive out of mAP and Macro-F1 (NaN if none is left)
    and is neutral on One-loss ties. `released` counts such labels as 0, keeps them in the mean and
    is lenient on ties. Micro-F1 is 0 where nothing is true and nothing predicted.
    """
    _one_of("convention", convention, ("default", "released"))
    s = _scores(scores)
    t, y = _binary("truth", truth, s), _binary("predicted", predicted, s)
    hits, claimed, positives = (_count(mask, axis=0) for mask in (t & y, y, t))
    either = claimed + positives  # 2TP + FP + FN
    values = np.stack([2 * hits / np.maximum(either, 1), average_precision(s, t)])
    if convention == "default":
        values = values[:, positives > 0]
    macro_f1, mean_ap = np.nan_to_num(values).mean(axis=1) if values.size else (np.nan, np.nan)
    return {
        "micro_f1": float(2 * hits.sum() / max(either.sum(), 1)),
        "macro_f1": float(macro_f1),
        "map": float(mean_ap),
        "hamming": float((either.sum() - 2 * hits.sum()) / s.size),
        "one_loss": one_loss(s, t, "neutral" if convention == "default" else "lenient"),
    }


def empty_labels(truth: ArrayLike) -> int:
    """Number of labels with no positive row."""
    t = np.asarray(truth)
    return int((~_binary("truth", t, t).any(axis=0)).sum())


def _by_label(rows: NDArray) -> NDArray:
    # a K × N copy, by blocks that fit the cache: half the time of one strided copy
    columns = np.empty(rows.shape[::-1], rows.dtype)
    for start in range(0, len(rows), 256):
        columns[:, start : start + 256] = rows[start : start + 256].T
    return columns


def _count(mask: NDArray[np.bool_], axis: int) -> NDArray[np.int64]:
    # summing bools in 32 bits takes half the time of NumPy's default
    return mask.sum(axis=axis, dtype=np.int32).astype(np.int64)


def _scores(scores: ArrayLike) -> NDArray:
    # Never cast: a narrower type would create ties, and every comparison here is exact as it is.
    s = _matrix("scores", scores)
    if s.dtype.kind not in "fiu" or np.isnan(s.min()):
        raise ValueError(f"scores must be real numbers with no NaN among them, got {s.dtype}")
    return s


def _binary(name: str, values: ArrayLike, like: NDArray) -> NDArray[np.bool_]:
    v = _matrix(name, values)
    if v.shape != like.shape:
        raise ValueError(f"{name} has shape {v.shape}, scores have {like.shape}")
    # -1 marks an unknown label in observed matrices: it must not pass for a positive here
    if v.dtype != np.bool_ and not ((v == 0) | (v == 1)).all():
        raise ValueError(f"{name} must hold only 0 and 1")
    return v.astype(np.bool_, copy=False)


def _matrix(name: str, values: ArrayLike) -> NDArray:
    v = np.asarray(values)
    if v.ndim != 2 or v.size == 0:
        raise ValueError(f"{name} must be a non-empty rows × labels matrix, got shape {v.shape}")
    return v


def _per_label(name: str, values: ArrayLike, like: NDArray) -> NDArray:
    v = np.asarray(values)
    if v.shape != like.shape[1:]:
        raise ValueError(f"{name} has shape {v.shape}, expected one per label: {like.shape[1:]}")
    return v


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"unknown {name} {value!r}; choose one of {', '.join(allowed)}")
