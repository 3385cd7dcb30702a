"""The diagnostics that the judge records beside the history: angles, pseudo-labels, calibration.

Pure functions of the truth and of arrays that training handed in. Their results go into a file of the
run's folder, which analyses read; nothing goes back into training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ssmlbench.protocol.matrices import blocks
from ssmlbench.protocol.observation import Labels, Observation, RowIndex

Float32Array = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

SAMPLED_ROWS = 2048
"""Features and scores are recorded for at most this many training rows: all, or a seeded sample."""
PAIRED_LABELS = 512
"""Pairs of labels are counted for data sets of at most this many labels."""
CALIBRATION_BINS = 10
HISTOGRAM_BINS = 50

ANGLE_COLUMNS = ("var_pos", "var_neg", "mean_pos", "mean_neg", "count_pos", "count_neg")
"""The statistics of a label's prototype angles."""
PSEUDO_COLUMNS = ("trusted", "positive", "hits", "true", "right")
"""The counts of a label's pseudo-labels: trusted entries, trusted positives, those that are true,
true positives of the pool, and trusted entries that are right."""
GROUPS = ("observed positives", "hidden positives", "negatives")
"""The groups of training entries, each with its own histogram of scores and cosines."""


@dataclass(frozen=True)
class Sample:
    """Network outputs and labels of the sampled training rows, labelled rows first.

    features   n × D, the head's inputs
    scores     n × K in [0, 1]; None if the method does not score a single view
    cosines    n × K; None for a head without them
    observed   n × K int8, the observed labels
    trained_on n × K int8, the observed labels and the trusted pseudo-labels
    """

    features: Float32Array
    scores: Float32Array | None
    cosines: Float32Array | None
    observed: Labels
    trained_on: Labels

    def statistics(self, truth: Labels) -> dict[str, Float32Array]:
        """The statistics of the sample, by the names of Records. truth: n × K, of its rows."""
        statistics = {
            "supervised": angle_statistics(self.features, truth == 1, truth == 0),
            "trained_on": angle_statistics(
                self.features, self.trained_on == 1, self.trained_on == 0
            ),
        }
        if self.scores is not None:
            hidden = np.where(self.observed < 0, truth, -1).astype(np.int8)
            statistics["calibration"] = calibration_counts(self.scores, hidden)
            statistics["scores"] = group_histograms(self.scores, self.observed, truth, 0, 1)
            statistics["score_sums"] = group_sums(self.scores, self.observed, truth)
        if self.cosines is not None:
            statistics["cosines"] = group_histograms(self.cosines, self.observed, truth, -1, 1)
        return statistics


@dataclass
class Records:
    """All diagnostics so far; each list has an entry for each recorded epoch.

    An epoch is the number of epochs that were finished then.
    """

    sample_epochs: list[int] = field(default_factory=list)
    # 6 × K, ANGLE_COLUMNS by the true labels, and by the observed labels and pseudo-labels
    supervised: list[Float32Array] = field(default_factory=list)
    trained_on: list[Float32Array] = field(default_factory=list)
    pseudo_epochs: list[int] = field(default_factory=list)
    pseudo_counts: list[Float32Array] = field(default_factory=list)  # 5 × K
    calibration: list[Float32Array] = field(default_factory=list)  # 3 × bins × K, of hidden entries
    scores: list[Float32Array] = field(default_factory=list)  # groups × bins over [0, 1]
    score_sums: list[Float32Array] = field(default_factory=list)  # of each group
    cosines: list[Float32Array] = field(default_factory=list)  # groups × bins over [-1, 1]
    head_weights: list[Float32Array] = field(default_factory=list)  # K × D, of the last epoch only

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """The lists as arrays, by name; an empty list is left out."""
        return {name: np.stack(values) for name, values in vars(self).items() if values}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[np.generic]]) -> Records:
        """The records that `arrays` gave."""
        return cls(**{name: list(values) for name, values in arrays.items()})

    def add(self, axis: str, epochs: int, values: Mapping[str, Float32Array]) -> None:
        """Add values after `epochs` epochs, and drop later ones: a resumed run repeats its last epoch.

        axis: the list of epochs that the values belong to.
        """
        earlier = sum(int(number) < epochs for number in getattr(self, axis))
        for name, value in {axis: np.asarray(epochs), **values}.items():
            setattr(self, name, [*getattr(self, name)[:earlier], value])


def label_counts(truth: Labels) -> dict[str, npt.NDArray[np.generic]]:
    """Positives of each label, K, and of each pair of labels, K × K, unless there are too many."""
    rows, labels = truth.shape
    paired = labels <= PAIRED_LABELS
    single, pairs = np.zeros(labels), np.zeros((labels, labels) if paired else 0)
    for part in blocks(rows, labels):
        positive = (truth[part] == 1).astype(np.float32)
        single += positive.sum(axis=0)
        if paired:
            pairs += positive.T @ positive
    counts: dict[str, npt.NDArray[np.generic]] = {"label_counts": single.astype(np.float32)}
    return {**counts, "pair_counts": pairs.astype(np.float32)} if paired else counts


def sampled_rows(observation: Observation, seed: int) -> dict[str, RowIndex]:
    """Pool → positions in it of the sampled rows, in order; both pools in proportion."""
    pools = {"labelled": observation.labelled, "unlabelled": observation.unlabelled}
    total = sum(map(len, pools.values()))
    if total <= SAMPLED_ROWS:
        return {name: np.arange(len(rows)) for name, rows in pools.items()}
    random = np.random.RandomState([seed, 2])
    drawn = np.sort(random.choice(total, SAMPLED_ROWS, replace=False))
    split = int(np.searchsorted(drawn, len(observation.labelled)))
    return {"labelled": drawn[:split], "unlabelled": drawn[split:] - len(observation.labelled)}


def angle_statistics(features: Float32Array, positive: Mask, negative: Mask) -> Float32Array:
    """Of each label, ANGLE_COLUMNS of φ_ik = arccos(z_i·c_k / |z_i||c_k|), 6 × K, in radians.

    features: N × D, the head's input z; positive, negative: N × K. c_k is the mean feature of the
    label's positives. Variances are unbiased. A number that is not defined is NaN.
    """
    counts = np.stack([positive.sum(axis=0), negative.sum(axis=0)]).astype(np.float64)
    prototypes = positive.T.astype(features.dtype) @ features
    cosines = _directions(features) @ _directions(prototypes).T
    angles = np.arccos(np.clip(cosines, -1, 1))
    means, variances = [], []
    with np.errstate(invalid="ignore", divide="ignore"):
        for member, count in zip((positive, negative), counts, strict=True):
            mean = np.where(member, angles, 0).sum(axis=0, dtype=np.float64) / count
            offset = np.where(member, angles - mean, 0)
            spread = np.einsum("nk,nk->k", offset, offset)
            means.append(mean)
            variances.append(np.where(count > 1, spread / (count - 1), np.nan))
    rows = np.stack([*variances, *means])
    rows[:, counts[0] == 0] = np.nan  # no positive, no prototype
    return np.concatenate([rows, counts]).astype(np.float32)


def _directions(vectors: Float32Array) -> Float32Array:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Float32Array = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit


def pseudo_label_counts(truth: Labels, positive: Mask, trusted: Mask) -> Float32Array:
    """PSEUDO_COLUMNS of each label, 5 × K. Entries of unknown truth are not counted."""
    counts = np.zeros((len(PSEUDO_COLUMNS), truth.shape[1]), dtype=np.int64)
    for part in blocks(*truth.shape):
        true, chosen = truth[part] == 1, positive[part]
        sure = np.broadcast_to(trusted[part], true.shape) & (truth[part] >= 0)
        claimed = chosen & sure
        columns = (sure, claimed, claimed & true, true, sure & (chosen == true))
        counts += np.stack([column.sum(axis=0) for column in columns])
    return counts.astype(np.float32)


def calibration_counts(scores: Float32Array, truth: Labels) -> Float32Array:
    """Count, sum of scores and true labels of each bin, 3 × bins × K; bins of equal width over [0, 1]."""
    labels = truth.shape[1]
    bins = np.minimum((scores * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    cells = (bins * labels + np.arange(labels)).ravel()
    known = (truth >= 0).ravel()
    weights = (known, np.where(known, scores.ravel(), 0), (truth == 1).ravel())
    size = CALIBRATION_BINS * labels
    counts = [np.bincount(cells, weight, minlength=size) for weight in weights]
    return np.stack(counts).reshape(3, CALIBRATION_BINS, labels).astype(np.float32)


def group_histograms(
    values: Float32Array, observed: Labels, truth: Labels, low: float, high: float
) -> Float32Array:
    """Histograms of the entries of each of GROUPS over [low, high], groups × bins."""
    members = _groups(observed, truth)
    counts = [np.histogram(values[m], HISTOGRAM_BINS, (low, high))[0] for m in members]
    return np.stack(counts).astype(np.float32)


def group_sums(values: Float32Array, observed: Labels, truth: Labels) -> Float32Array:
    """The sum of the entries of each of GROUPS."""
    sums = [values[m].sum(dtype=np.float64) for m in _groups(observed, truth)]
    return np.asarray(sums, dtype=np.float32)


def _groups(observed: Labels, truth: Labels) -> tuple[Mask, Mask, Mask]:
    """The members of each of GROUPS, n × K."""
    positive = truth == 1
    return positive & (observed == 1), positive & (observed != 1), truth == 0
