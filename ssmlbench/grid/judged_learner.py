"""A learner that was judged on folds of the labelled rows: how good it is, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ssmlbench.core.intervals import fold_overlap, mean_with_interval
from ssmlbench.protocol.decisions import decide
from ssmlbench.protocol.metrics import average_precision
from ssmlbench.runs.metric_values import metric_value
from ssmlbench.runs.scores import StoredScores

if TYPE_CHECKING:
    from ssmlbench.runs.finished import Finished

METRIC = "map"
BLOCKS = 20
"""Blocks of rows that are left out in turn, for the interval of a metric of all held-out rows."""

TINY = 1e-12
"""Scores are kept so far from 0 and 1 that their logits are finite."""
LARGEST_LOGIT = 7.0
"""Logits beyond it, of scores below 0.001 or above 0.999, count as so large in means and spreads."""

LowHigh = tuple[float, float]
Expected = tuple[float, LowHigh]
"""A metric of many new rows, with its 95 % interval."""


@dataclass(frozen=True)
class JudgedLearner:
    """One learner, judged on every fold."""

    name: str
    uses: str  # "labelled rows" or "both pools"
    runs: tuple[Finished, ...]  # one per fold, by seed
    folds: int  # into how many the labelled rows are divided; fewer may be judged
    values: tuple[float, ...]  # mAP on each fold
    seconds: tuple[float, ...]  # of each fold, also of those that an earlier command has made

    @classmethod
    def of(cls, name: str, runs: Sequence[Finished], folds: int) -> JudgedLearner:
        """Read how good a learner is from its runs."""
        values = tuple(metric_value(run, METRIC, "calibrated", "default") for run in runs)
        seconds = tuple(training_seconds(run) for run in runs)
        uses = str(runs[0].result.get("uses", ""))
        return cls(name, uses, tuple(runs), folds, values, seconds)

    def first(self, count: int) -> JudgedLearner:
        """The same learner on the first folds only."""
        by_fold = {name: getattr(self, name)[:count] for name in ("runs", "values", "seconds")}
        return replace(self, **by_fold)

    @property
    def mean(self) -> float:
        """The mean mAP over folds."""
        return mean_and_deviation(self.values)[0]

    @property
    def std(self) -> float:
        """The standard deviation of mAP over folds."""
        return mean_and_deviation(self.values)[1]

    @property
    def expected(self) -> tuple[Expected, Expected, tuple[int, int]]:
        """Micro-F1 of the labels that the calibrated rule chooses, and mAP, of many new rows.

        Last, the number of labels that mAP is a mean of, and that of all labels.
        """
        scores = [StoredScores.read(run.folder) for run in self.runs]
        counts = labels_with_positives(scores)
        return micro_f1_of_all(scores, self.folds), map_of_all(scores, self.folds), counts


def training_seconds(run: Finished) -> float:
    """The seconds that a run has trained, without reading and encoding."""
    return float(run.result["cost"].get("seconds", 0.0))


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the standard deviation of the values that are finite; NaN if none is."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return math.nan, math.nan
    mean = math.fsum(finite) / len(finite)
    squares = math.fsum((value - mean) ** 2 for value in finite)
    return mean, math.sqrt(squares / max(len(finite) - 1, 1))


@dataclass(frozen=True)
class FoldDifference:
    """How much better one learner is than another, over the same folds."""

    mean: float
    interval: LowHigh  # 95 %, paired t, wider for the training rows that folds share

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.interval[0] > 0 or self.interval[1] < 0


def fold_difference(ours: JudgedLearner, theirs: JudgedLearner) -> FoldDifference:
    """The mean difference over folds, with its paired t interval."""
    each = [a - b for a, b in zip(ours.values, theirs.values, strict=True)]
    return FoldDifference(*mean_over_folds(each, ours.folds))


def mean_over_folds(values: Sequence[float], folds: int) -> tuple[float, LowHigh]:
    """The mean of some folds' values and its 95 % interval, which is unbounded for fewer than two.

    A fold without a positive has no mAP: its value is NaN and does not count.
    """
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return mean_and_deviation(values)[0], (-math.inf, math.inf)
    return mean_with_interval(finite, fold_overlap(folds))


def micro_f1_of_all(folds: Sequence[StoredScores], divided: int) -> Expected:
    """The Micro-F1 to expect of many new rows, from the labels chosen in all folds.

    Two variances are added. That of folds says how much models differ, but few folds say it badly, and may
    agree by chance; that of rows, by a jackknife, is known well. Rows count in both: the surplus is for
    models of folds, which have learnt from fewer rows than the one that is used.

    divided: into how many folds the rows are divided, of which some are judged.
    """
    import numpy as np
    from scipy.special import stdtrit

    counts = np.concatenate([_label_counts(fold) for fold in folds])
    if not counts.any():
        return math.nan, (0.0, 1.0)
    values = np.array([_f1(_label_counts(fold)) for fold in folds])
    values = values[np.isfinite(values)]
    without = np.array([_f1(counts[kept]) for kept in _blocks_left_out(len(counts))])
    value = _f1(counts)
    if len(values) < 2 or not np.isfinite(without).all():
        return value, (0.0, 1.0)
    of_folds = float(values.var(ddof=1)) * (1 / len(values) + fold_overlap(divided))
    of_rows = _jackknife_variance(without) * (1 + len(folds) * fold_overlap(divided))
    freedom = 2 * (len(values) - 1)  # each of the two has at least half of it
    reach = float(stdtrit(freedom, 0.975)) * math.sqrt(of_folds + of_rows)
    return value, (max(0.0, value - reach), min(1.0, value + reach))


def _label_counts(fold: StoredScores) -> NDArray[Any]:
    """Three counts of labels for each row: rightly chosen by the calibrated rule, chosen, and true."""
    import numpy as np

    chosen = decide(fold.scores, "calibrated", parameters=fold.parameters)
    return np.stack([part.sum(axis=1) for part in (chosen & fold.truth, chosen, fold.truth)], 1)


def _f1(counts: NDArray[Any]) -> float:
    """Micro-F1 from the label counts of rows; NaN if no label is chosen or true."""
    right, chosen, true = counts.sum(axis=0)
    return float(2 * right / (chosen + true)) if chosen + true else math.nan


def _blocks_left_out(rows: int) -> list[NDArray[Any]]:
    """For each of some blocks of rows, which rows are not in it."""
    import numpy as np

    blocks = min(BLOCKS, rows)
    block_of = np.arange(rows) % blocks
    return [block_of != block for block in range(blocks)]


def _jackknife_variance(without: NDArray[Any]) -> float:
    """The variance of a value of all rows, from its values without each block."""
    share = (len(without) - 1) / len(without)
    return share * float(((without - without.mean()) ** 2).sum())


def labels_with_positives(folds: Sequence[StoredScores]) -> tuple[int, int]:
    """The number of labels with a positive among the held-out rows of all folds, and of all labels."""
    import numpy as np

    judged = np.logical_or.reduce([fold.truth.any(axis=0) for fold in folds])
    return int(judged.sum()), len(judged)


def map_of_all(folds: Sequence[StoredScores], divided: int) -> Expected:
    """The mAP to expect of many new rows, from the held-out rows of all folds, and its 95 % interval.

    A fold has few positives of a rare label, or none: its AP is then far too high, or undefined. So the
    rows of all folds are judged as one set. Even there, the AP of few positives is too high; a jackknife,
    which leaves out one block of rows after the other, estimates by how much. On the other hand, the
    models of folds learnt from fewer rows than the final model. So half of the jackknife's correction is
    applied. The interval is widened for this doubt, and for the training rows that folds share.

    divided: the number of folds; perhaps not all of them are judged.
    """
    import numpy as np
    from scipy.special import stdtrit

    scores = np.concatenate(on_one_scale([fold.scores for fold in folds]))
    truth = np.concatenate([fold.truth for fold in folds])
    judged = truth.any(axis=0)  # labels without a positive have no AP
    scores, truth = scores[:, judged], truth[:, judged]
    if not judged.any():
        return math.nan, (0.0, 1.0)
    each = average_precision(scores, truth)
    left = [(scores[kept], truth[kept]) for kept in _blocks_left_out(len(scores))]
    blocks = len(left)
    without = np.array([average_precision(*rest) for rest in left if rest[1].any()])
    if len(without) < 2:
        return float(each.mean()), (0.0, 1.0)
    # If all positives of a label are in one block, its value without that block is NaN.
    too_high = (blocks - 1) * float((np.nanmean(without, axis=0) - each).mean())
    variance = _jackknife_variance(np.nanmean(without, axis=1))
    shared = 1 + len(folds) * fold_overlap(divided)
    doubt = (too_high / 2) ** 2 / 3  # the variance between no correction and all of it
    reach = float(stdtrit(blocks - 1, 0.975)) * math.sqrt(variance * shared + doubt)
    value = min(max(float(each.mean()) - too_high / 2, 0.0), 1.0)
    return value, (max(0.0, value - reach), min(1.0, value + reach))


def on_one_scale(folds: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The scores of folds (rows × labels each) as logits that can be compared across folds.

    Each fold is scored by its own model, and the models have different scales. A model that saw fewer
    positives of a label gives it lower scores, although its held-out rows have more of them; a model with
    stronger regularisation gives scores that are closer together. If they were ranked together unchanged,
    a good model would look worse than in each fold. So the logits of each label are shifted to mean 0 in
    each fold, and those of a fold are divided by its spread, the median over labels. The order of a label's
    rows within a fold does not change.
    """
    import numpy as np
    from scipy.special import logit

    logits = [logit(np.clip(fold.astype(np.float64), TINY, 1 - TINY)) for fold in folds]
    # scores of 0 and 1 have logits too
    near = [np.clip(fold, -LARGEST_LOGIT, LARGEST_LOGIT) for fold in logits]
    means = [fold.mean(axis=0) for fold in near]
    spreads = np.stack([fold.std(axis=0) for fold in near])
    usual = np.sqrt((spreads**2).mean(axis=0))
    varied = (spreads > 0).all(axis=0)
    if varied.any():
        relative = np.median(spreads[:, varied] / usual[varied], axis=1)
    else:
        relative = np.ones(len(folds))
    return [
        (fold - mean) / spread for fold, mean, spread in zip(logits, means, relative, strict=True)
    ]
