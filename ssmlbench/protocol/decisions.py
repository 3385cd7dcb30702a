"""The decision rules, which turn scores into label sets: one table, one entry for each rule.

To add a rule, add an entry to `RULES`. Runs, boards, exported files and reports read the table. NumPy
only, so that `compare` never imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ssmlbench.protocol.matrices import (
    IN_CACHE,
    as_labels,
    as_scores,
    blocks,
    by_label,
    check_choice,
    count,
    per_label,
)

Parameters = Mapping[str, NDArray[Any]]
"""Fitted parameters by name, as a run stores them beside its scores."""


@dataclass(frozen=True)
class DecisionRule:
    """One way to turn scores into label sets.

    name        as typed after --decision, and the key in result.json
    text        what a board's footnote says about the rule
    decide      (scores N × K, truth N × K, parameters) → label sets N × K
    mark        shown at the metrics that the rule feeds; ‡ for a rule that reads the truth
    fit         (training scores, labelled prior) → parameters, for a rule that is fitted. It is called
                while a run is made; its parameters are stored beside the run's scores
    parameters  the names of what `fit` returns, unique among all rules
    """

    name: str
    text: str
    decide: Callable[[NDArray[Any], NDArray[np.bool_], Parameters], NDArray[np.bool_]]
    mark: str = ""
    fit: Callable[[NDArray[Any], NDArray[np.float64]], Parameters] | None = None
    parameters: tuple[str, ...] = ()


def decide(
    scores: ArrayLike,
    rule: str,
    *,
    truth: ArrayLike | None = None,
    parameters: Parameters | None = None,
) -> NDArray[np.bool_]:
    """The label sets (N × K) that a rule of `RULES` reads from the scores (N × K).

    Rules with a mark need `truth`; fitted rules need the `parameters` that their `fit` returned.
    """
    s = as_scores(scores)
    check_choice("decision", rule, tuple(RULES))
    entry, given = RULES[rule], parameters or {}
    if lacking := [name for name in entry.parameters if name not in given]:
        raise ValueError(f"decision {rule!r} needs parameters: {', '.join(lacking)}")
    if truth is None and entry.mark:
        raise ValueError(f"decision {rule!r} needs truth=, for the true labels of each row")
    known = np.zeros(s.shape, np.bool_) if truth is None else as_labels("truth", truth, s)
    return entry.decide(s, known, given)


def fit_rules(train_scores: ArrayLike, prior: ArrayLike) -> dict[str, NDArray[np.float32]]:
    """The parameters of all fitted rules, by name, from the scores of training rows."""
    s = as_scores(train_scores)
    p = per_label("prior", prior, s).astype(np.float64)
    fitted: dict[str, NDArray[np.float32]] = {}
    for rule in RULES.values():
        if rule.fit is not None:
            found = rule.fit(s, p)
            if found.keys() != set(rule.parameters) or found.keys() & fitted.keys():
                raise ValueError(
                    f"decision rule {rule.name!r} must fit {', '.join(rule.parameters)} under names "
                    f"that no other rule has; it fitted {', '.join(found)}"
                )
            fitted |= {name: np.asarray(value, np.float32) for name, value in found.items()}
    return fitted


# --------------------------------------------------------------------------------- the rules


def calibrated_thresholds(train_scores: ArrayLike, prior: ArrayLike) -> NDArray[np.floating]:
    """Per label, the score that round(prior · n) of the n training rows reach; +inf for none.

    Rows tied at the threshold are all predicted, so ties can push the rate above the prior.
    """
    s = as_scores(train_scores)
    p = per_label("prior", prior, s).astype(np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("prior must lie in [0, 1] for every label")
    rank = np.rint(p * len(s)).astype(np.intp)
    at = np.minimum(len(s) - rank, len(s) - 1)
    reached = np.empty(len(at), s.dtype)
    for part in blocks(s.shape[1], len(s)):
        columns = by_label(s[:, part])
        places = at[part]
        for column, place in zip(columns, places, strict=True):
            column.partition(place)
        reached[part] = columns[np.arange(len(columns)), places]
    # float scores keep their type; integers need one that has an inf
    reached = reached.astype(np.result_type(s, np.float16), copy=False)
    thresholds: NDArray[np.floating] = np.where(rank > 0, reached, reached.dtype.type(np.inf))
    return thresholds


def _calibrated(
    scores: NDArray[Any], truth: NDArray[np.bool_], parameters: Parameters
) -> NDArray[np.bool_]:
    chosen: NDArray[np.bool_] = scores >= per_label("thresholds", parameters["thresholds"], scores)
    return chosen


def _threshold(
    scores: NDArray[Any], truth: NDArray[np.bool_], parameters: Parameters
) -> NDArray[np.bool_]:
    chosen: NDArray[np.bool_] = scores > 0.5
    return chosen


def _top_k(
    scores: NDArray[Any], truth: NDArray[np.bool_], parameters: Parameters
) -> NDArray[np.bool_]:
    """The k best labels of a row with k true ones; ties go to the lower label index."""
    chosen = np.empty(scores.shape, np.bool_)
    for part in blocks(len(scores), scores.shape[1], entries=IN_CACHE):
        chosen[part] = _top_k_of(scores[part], count(truth[part], axis=1))
    return chosen


def _top_k_of(scores: NDArray[Any], k: NDArray[np.int64]) -> NDArray[np.bool_]:
    # A value sort is several times faster than an argsort. Only rows whose next score is level with
    # the k-th then need their tied labels counted off.
    ordered = np.sort(scores, axis=1).ravel()
    row, rank = np.arange(len(scores)) * scores.shape[1], scores.shape[1] - k
    last = row + np.minimum(rank, scores.shape[1] - 1)
    cut = ordered.take(last)[:, None]
    chosen: NDArray[np.bool_] = scores >= cut
    chosen[k == 0] = False
    level = ordered.take(np.maximum(last - 1, row)) == cut[:, 0]
    over = np.flatnonzero(level & (rank > 0) & (k > 0))
    if over.size:
        above, tied = scores[over] > cut[over], scores[over] == cut[over]
        room = k[over] - count(above, axis=1)
        chosen[over] = above | (tied & (tied.cumsum(axis=1, dtype=np.int32) <= room[:, None]))
    return chosen


_ENTRIES = (
    DecisionRule(
        "calibrated",
        "label sets by per-label thresholds that match the labelled prior (calibrated)",
        _calibrated,
        fit=lambda scores, prior: {"thresholds": calibrated_thresholds(scores, prior)},
        parameters=("thresholds",),
    ),
    DecisionRule("threshold", "label sets by score > 0.5 (threshold)", _threshold),
    DecisionRule(
        "top-k",
        "label sets by the true number of labels of each test row (top-k): an oracle rule",
        _top_k,
        mark="‡",
    ),
)
RULES = {rule.name: rule for rule in _ENTRIES}
"""Every decision rule by its name."""
