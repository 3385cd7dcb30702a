"""The hidden labels of the training rows. Only diagnostics read them; nothing here reaches training."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ssmlbench.protocol.diagnostics import Float32Array, Sample, label_counts, pseudo_label_counts
from ssmlbench.protocol.matrices import blocks
from ssmlbench.protocol.observation import Labels, RowIndex


class SealedTruth:
    """The true labels of the training rows, for diagnostics only.

    It takes finished decisions and returns numbers for the history and for analyses; nothing goes back
    into training.
    """

    def __init__(self, truth: Labels):
        self._truth = truth

    def pseudo_label_quality(
        self, rows: RowIndex, positive: npt.NDArray[np.bool_], trusted: npt.NDArray[np.bool_]
    ) -> dict[str, float]:
        """Precision and recall of the trusted positive pseudo-labels, and the share trusted at all.

        rows: n positions in the training set; positive, trusted: n × K.
        """
        hits = chosen = true = 0
        for part in blocks(len(rows), positive.shape[1]):
            truth = self._truth[rows[part]] == 1
            sure = positive[part] & trusted[part]
            hits += int(np.count_nonzero(sure & truth))
            chosen += int(np.count_nonzero(sure))
            true += int(np.count_nonzero(truth))
        return {
            "pseudo_precision": hits / max(chosen, 1),
            "pseudo_recall": hits / max(true, 1),
            "pseudo_trusted": np.count_nonzero(trusted) / max(trusted.size, 1),
        }

    def pseudo_label_counts(
        self, rows: RowIndex, positive: npt.NDArray[np.bool_], trusted: npt.NDArray[np.bool_]
    ) -> Float32Array:
        """The counts behind precision, recall and coverage, label by label."""
        return pseudo_label_counts(self._truth[rows], positive, trusted)

    def label_counts(self) -> dict[str, npt.NDArray[np.generic]]:
        """The numbers of positives of each label, and of each pair of labels."""
        return label_counts(self._truth)

    def sample_statistics(self, rows: RowIndex, sample: Sample) -> dict[str, Float32Array]:
        """Angles, calibration and histograms of sampled training rows."""
        return sample.statistics(self._truth[rows])

    def last_sample(self, rows: RowIndex, sample: Sample) -> dict[str, npt.NDArray[np.generic]]:
        """The inputs of `sample_statistics`, for readers who compute such numbers themselves."""
        arrays: dict[str, npt.NDArray[np.generic]] = {
            "rows": np.asarray(rows),
            "features": sample.features,
            "truth": self._truth[rows],
            "observed": sample.observed,
            "trained_on": sample.trained_on,
        }
        others = {"scores": sample.scores, "cosines": sample.cosines}
        return arrays | {name: value for name, value in others.items() if value is not None}
