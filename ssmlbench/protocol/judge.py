"""The judge: the only part of a run that holds hidden and test labels.

Training hands in pseudo-labels and scores. It learns nothing of what they are worth, apart from one
bit an epoch under `--selection val` and `oracle`: whether this epoch is the best so far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ssmlbench.core.errors import ContractError, RunFailed
from ssmlbench.core.spec import RunSpec
from ssmlbench.protocol import metrics
from ssmlbench.protocol.decisions import fit_rules
from ssmlbench.protocol.diagnostics import Float32Array, Mask, Records, Sample, sampled_rows
from ssmlbench.protocol.observation import Labels, Observation, RowIndex, observe
from ssmlbench.protocol.regimes import REGIMES, UNKNOWN
from ssmlbench.protocol.sealed import SealedTruth


class JudgeDesk(Protocol):
    """What training can say to the judge, in the same process or through a pipe."""

    def grade(self, epoch: int, positive: Mask, trusted: Mask) -> None:
        """Hand in the pseudo-labels of the unlabelled rows, N_u × K; trust may be N_u × 1.

        Epochs are counted from 1.
        """

    def is_best(self, epoch: int, scores: Any) -> bool:
        """Hand in an epoch's scores of the rows that select; whether the epoch is the best so far."""

    def hand_in(self, epoch: int, train_scores: Any, scores: Any) -> None:
        """Hand in the scores of an epoch that may be the run's: of training rows and judged rows."""

    def record(self, epochs: int, features: Any, scores: Any | None, cosines: Any | None) -> None:
        """Hand in outputs of the sampled training rows after so many epochs, for the analyses.

        They are those of a `Sample`.
        """

    def hand_in_weights(self, weights: Any) -> None:
        """Hand in the classifier's weights after the last epoch, K × D, for the analyses."""

    def save(self, epoch: int) -> None:
        """Make sure that all that was handed in up to this epoch survives a kill."""


@dataclass
class Judgements:
    """What a judge has found so far: enough to continue after a kill."""

    epochs: int = 0  # up to which everything is in here
    by_epoch: dict[int, dict[str, float]] = field(default_factory=dict)  # columns of the history
    best: float = -math.inf  # the metric of the selected epoch
    selected_epoch: int = 0
    scores: Float32Array | None = None  # of the judged rows, in the selected epoch
    rule_parameters: dict[str, Float32Array] = field(default_factory=dict)
    records: Records = field(default_factory=Records)  # for the analyses


class Judge:
    """Holds a run's hidden labels and the labels of the rows that are judged."""

    def __init__(
        self,
        spec: RunSpec,
        observation: Observation,
        hidden: SealedTruth | None,
        judged_truth: Labels,
    ):
        """hidden: of the training rows; None: pseudo-labels are not graded."""
        self.spec = spec
        self.observation = observation
        self.judged_truth = judged_truth
        self.found = Judgements()
        self.notes: list[str] = []  # what training did that readers of the result should know
        self._hidden = hidden
        self._asked: set[int] = set()  # epochs that `is_best` was asked about
        self._pseudo: tuple[Mask, Mask] | None = None  # as graded last: positive, trusted
        self._last: tuple[RowIndex, Sample] | None = None  # as recorded last, and its rows

    @classmethod
    def of(cls, spec: RunSpec, truth: Labels, test_truth: Labels | None) -> Judge:
        """The judge of a run. truth: of the training rows. A trial of `tune` needs no test labels."""
        observation = observe(truth, spec)
        if rows_from_train(spec):  # no hidden label is held, nor used
            return cls(spec, observation, None, observation.labels[judged_rows(spec, observation)])
        assert test_truth is not None
        hidden = None if REGIMES[spec.regime].as_given else SealedTruth(truth)
        return cls(spec, observation, hidden, test_truth)

    def visible(self) -> Observation:
        """What training may know: copies, without the labels of the rows that were held out."""
        seen = self.observation
        labels = seen.labels.copy()
        labels[seen.validation] = UNKNOWN
        labels[seen.judged] = UNKNOWN
        return replace(
            seen,
            labels=labels,
            labelled=seen.labelled.copy(),
            unlabelled=seen.unlabelled.copy(),
            validation=seen.validation.copy(),
            judged=seen.judged.copy(),
            prior=seen.prior.copy(),
        )

    def grade(self, epoch: int, positive: Mask, trusted: Mask) -> None:
        """Note precision and recall of the pseudo-labels of the unlabelled rows."""
        rows = self.observation.unlabelled
        if self._hidden is None or not len(rows):
            return
        expected = (len(rows), self.observation.labels.shape[1])
        if positive.shape != expected or trusted.shape not in (expected, (len(rows), 1)):
            raise RunFailed(
                f"pseudo-labels of {self.spec.method} have shape {positive.shape} and trust "
                f"{trusted.shape}, expected {expected}"
            )
        self._note(epoch, self._hidden.pseudo_label_quality(rows, positive, trusted))
        trusted = np.broadcast_to(trusted, expected)
        self._pseudo = positive, trusted
        counts = self._hidden.pseudo_label_counts(rows, positive, trusted)
        self.found.records.note("pseudo_epochs", epoch - 1, {"pseudo_counts": counts})

    def record(self, epochs: int, features: Any, scores: Any | None, cosines: Any | None) -> None:
        """Note angles, calibration and histograms of the sampled training rows."""
        if self._hidden is None:
            return
        seen, sample = self.observation, sampled_rows(self.observation, self.spec.seed)
        rows = np.concatenate([getattr(seen, pool)[where] for pool, where in sample.items()])
        observed = seen.labels[rows]
        trained_on = observed.copy()
        if self._pseudo is not None:
            positive, trusted = (mask[sample["unlabelled"]] for mask in self._pseudo)
            decided = np.where(trusted, positive.astype(np.int8), UNKNOWN)
            trained_on[len(sample["labelled"]) :] = decided
        if scores is not None:
            scores = checked_scores(scores, observed.shape, self.spec.method)
        features, cosines = (
            None if values is None else np.asarray(values, dtype=np.float32)
            for values in (features, cosines)
        )
        fits = features is not None and features.ndim == 2 and len(features) == len(rows)
        if not fits or (cosines is not None and cosines.shape != observed.shape):
            raise RunFailed(f"features of {self.spec.method} are not those of {len(rows)} rows")
        handed_in = Sample(features, scores, cosines, observed, trained_on)
        found = self._hidden.examined(rows, handed_in)
        self.found.records.note("sample_epochs", epochs, found)
        self._last = rows, handed_in

    def last_sample(self) -> dict[str, npt.NDArray[np.generic]]:
        """The sampled rows as they were recorded last, with their true labels; empty if never."""
        if self._hidden is None or self._last is None:
            return {}
        return self._hidden.last_sample(*self._last)

    def hand_in_weights(self, weights: Any) -> None:
        """Note the classifier's weights, K × D."""
        self.found.records.head_weights = [np.asarray(weights, dtype=np.float32)]

    def label_counts(self) -> dict[str, npt.NDArray[np.generic]]:
        """How often each label and pair is positive in the training rows, for the analyses."""
        return {} if self._hidden is None else self._hidden.label_counts()

    def is_best(self, epoch: int, scores: Any) -> bool:
        """Note the mAP of the rows that select; whether it is the best so far."""
        # Each answer tells something about the labels: one an epoch, and none where nothing selects.
        if self.spec.selection == "last" or not 1 <= epoch <= self.spec.epochs:
            raise RunFailed(f"{self.spec.method} asked the judge about epoch {epoch} without need")
        if epoch in self._asked:
            raise RunFailed(f"{self.spec.method} asked the judge about epoch {epoch} twice")
        self._asked.add(epoch)
        if self.spec.selection == "val":
            truth = self.observation.labels[self.observation.validation]
        else:
            truth = self.judged_truth
        sound = checked_scores(scores, truth.shape, self.spec.method)
        precisions = metrics.average_precision(sound, truth == 1)
        value = float(np.nanmean(precisions)) if np.isfinite(precisions).any() else 0.0
        self._note(epoch, {f"{self.spec.selection}_map": value})
        if value <= self.found.best:
            return False
        self.found.best = value
        return True

    def hand_in(self, epoch: int, train_scores: Any, scores: Any) -> None:
        """Keep the scores of an epoch, and fit the decision rules on those of the training rows."""
        name, labels = self.spec.method, self.observation.labels.shape[1]
        rows = len(self.observation.labelled) + len(self.observation.unlabelled)
        fitted_on = checked_scores(train_scores, (rows, labels), name)
        self.found.scores = checked_scores(scores, self.judged_truth.shape, name)
        self.found.rule_parameters = fit_rules(fitted_on, self.observation.prior)
        self.found.selected_epoch = epoch

    def save(self, epoch: int) -> None:
        """Note that everything up to this epoch is in `found`; a subclass writes it to disk."""
        self.found.epochs = epoch

    def _note(self, epoch: int, values: Mapping[str, float]) -> None:
        self.found.by_epoch.setdefault(epoch, {}).update(values)


def rows_from_train(spec: RunSpec) -> bool:
    """Whether the rows that are judged, if any, are training rows: the test set is not opened."""
    return spec.judged_on != "test" or bool(spec.folds)


def judged_rows(spec: RunSpec, observation: Observation) -> RowIndex:
    """The training rows that such a run is judged on."""
    return observation.validation if spec.judged_on == "held-out" else observation.judged


def checked_scores(scores: Any, shape: tuple[int, ...], name: str) -> Float32Array:
    """The scores as float32; a ContractError that names the method if they are no scores in [0, 1]."""
    try:
        found = np.asarray(scores, dtype=np.float32)
    except (TypeError, ValueError):
        raise ContractError(
            f"scores of {name} must be a matrix of numbers, got {type(scores).__name__}", "scores"
        ) from None
    if scores is None:
        raise ContractError(f"scores of {name} are None: does the function return them?", "scores")
    if found.shape != shape:
        raise ContractError(
            f"scores of {name} have shape {found.shape}, expected N × K: {shape}", "scores"
        )
    if found.size and not (found.min() >= 0 and found.max() <= 1):  # NaN fails both comparisons
        bad = found[~((found >= 0) & (found <= 1))]
        raise ContractError(
            f"scores of {name} are not all numbers in [0, 1]: {len(bad):,} of {found.size:,} are "
            f"outside, the first is {bad[0]:g}",
            "scores",
        )
    return found
