"""The judge: the only part of a run that holds hidden and test labels.

Training hands in pseudo-labels and scores. It never learns how good they are, apart from one bit per
epoch under `--selection val` and `oracle`: whether this epoch is the best so far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ssmlbench.core.errors import ContractError, RunFailed
from ssmlbench.core.remarks import Remarks
from ssmlbench.core.spec import RunSpec
from ssmlbench.protocol import metrics
from ssmlbench.protocol.decisions import fit_rules
from ssmlbench.protocol.diagnostics import Float32Array, Mask, Records, Sample, sampled_rows
from ssmlbench.protocol.observation import Labels, Observation, RowIndex, observe
from ssmlbench.protocol.regimes import REGIMES, UNKNOWN
from ssmlbench.protocol.sealed import SealedTruth


class JudgeInterface(Protocol):
    """The judge as training sees it, in the same process or through a pipe."""

    def grade(self, epoch: int, positive: Mask, trusted: Mask) -> None:
        """Hand in the pseudo-labels of the unlabelled rows, N_u × K; trust may be N_u × 1.

        Epochs are counted from 1.
        """

    def is_best(self, epoch: int, scores: Any) -> bool:
        """Hand in an epoch's scores of the selection rows; whether the epoch is the best so far."""

    def hand_in(self, epoch: int, train_scores: Any, scores: Any) -> None:
        """Hand in an epoch's scores of training rows and judged rows; the last ones are the run's."""

    def record(self, epochs: int, features: Any, scores: Any | None, cosines: Any | None) -> None:
        """Hand in outputs of the sampled training rows after `epochs` epochs (see `Sample`)."""

    def hand_in_weights(self, weights: Any) -> None:
        """Hand in the classifier's weights after the last epoch, K × D."""

    def save(self, epoch: int) -> None:
        """Store everything that was handed in up to this epoch, so that it survives a kill."""


@dataclass
class Judgements:
    """The results of a judge so far: enough to continue after a kill."""

    epochs: int = 0  # everything up to this epoch is in here
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
        self.judgements = Judgements()
        self.notes = Remarks()
        self._hidden = hidden
        self._asked_epochs: set[int] = set()  # by `is_best`
        self._awaited = 0  # the epoch that was just called the best; 0: no scores are awaited
        self._pseudo: tuple[Mask, Mask] | None = None  # the last ones: positive, trusted
        self._last: tuple[RowIndex, Sample] | None = None  # the last sample and its rows

    @classmethod
    def of(cls, spec: RunSpec, truth: Labels, test_truth: Labels | None) -> Judge:
        """The judge of a run. truth: of the training rows. A trial of `tune` needs no test labels."""
        observation = observe(truth, spec)
        if rows_from_train(spec):  # no hidden label is needed
            return cls(spec, observation, None, observation.labels[judged_rows(spec, observation)])
        assert test_truth is not None
        hidden = None if REGIMES[spec.regime].as_given else SealedTruth(truth)
        return cls(spec, observation, hidden, test_truth)

    @property
    def last_epoch(self) -> int:
        """The number of the last epoch; an estimator has one, whatever the spec says."""
        return 1 if self.spec.is_estimator else self.spec.epochs

    def note(self, text: str) -> None:
        """Add a remark on training for readers of the result."""
        self.notes.add(text)

    def visible(self) -> Observation:
        """The observation for training: copies, without the labels of the held-out rows."""
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
        """Record precision and recall of the pseudo-labels of the unlabelled rows."""
        rows = self.observation.unlabelled
        self._check_epoch(epoch, 1)
        if self._hidden is None or not len(rows):
            return
        expected = (len(rows), self.observation.labels.shape[1])
        if positive.shape != expected or trusted.shape not in (expected, (len(rows), 1)):
            raise RunFailed(
                f"pseudo-labels of {self.spec.method} have shape {positive.shape} and trust "
                f"{trusted.shape}, expected {expected}"
            )
        self._add(epoch, self._hidden.pseudo_label_quality(rows, positive, trusted))
        trusted = np.broadcast_to(trusted, expected)
        self._pseudo = positive, trusted
        counts = self._hidden.pseudo_label_counts(rows, positive, trusted)
        self.judgements.records.add("pseudo_epochs", epoch - 1, {"pseudo_counts": counts})

    def record(self, epochs: int, features: Any, scores: Any | None, cosines: Any | None) -> None:
        """Record angles, calibration and histograms of the sampled training rows."""
        self._check_epoch(epochs, 0)
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
        outputs = Sample(features, scores, cosines, observed, trained_on)
        statistics = self._hidden.sample_statistics(rows, outputs)
        self.judgements.records.add("sample_epochs", epochs, statistics)
        self._last = rows, outputs

    def last_sample(self) -> dict[str, npt.NDArray[np.generic]]:
        """The last recorded sample with its true labels; empty if there is none."""
        if self._hidden is None or self._last is None:
            return {}
        return self._hidden.last_sample(*self._last)

    def hand_in_weights(self, weights: Any) -> None:
        """Record the classifier's weights, K × D."""
        weights = np.asarray(weights, dtype=np.float32)
        if weights.ndim != 2 or len(weights) != self.observation.labels.shape[1]:
            raise RunFailed(
                f"weights of {self.spec.method} have shape {weights.shape}, expected K × D"
            )
        self.judgements.records.head_weights = [weights]

    def label_counts(self) -> dict[str, npt.NDArray[np.generic]]:
        """The numbers of positives of each label and pair in the training rows, for the analyses."""
        return {} if self._hidden is None else self._hidden.label_counts()

    def is_best(self, epoch: int, scores: Any) -> bool:
        """Record the mAP of the selection rows; whether it is the best so far."""
        # An answer reveals something about the labels: at most one per epoch, and only for selection.
        if self.spec.selection == "last" or not 1 <= epoch <= self.spec.epochs:
            raise RunFailed(
                f"{self.spec.method} asked the judge about epoch {epoch}; the protocol has no such question"
            )
        if epoch in self._asked_epochs:
            raise RunFailed(f"{self.spec.method} asked the judge about epoch {epoch} twice")
        self._asked_epochs.add(epoch)
        if self.spec.selection == "val":
            truth = self.observation.labels[self.observation.validation]
        else:
            truth = self.judged_truth
        checked = checked_scores(scores, truth.shape, self.spec.method)
        precisions = metrics.average_precision(checked, truth == 1)
        value = float(np.nanmean(precisions)) if np.isfinite(precisions).any() else 0.0
        self._add(epoch, {f"{self.spec.selection}_map": value})
        if value <= self.judgements.best:
            return False
        self.judgements.best, self._awaited = value, epoch
        return True

    def hand_in(self, epoch: int, train_scores: Any, scores: Any) -> None:
        """Keep the scores of an epoch, and fit the decision rules on those of the training rows.

        Training does not choose the epoch: it is the last one, or the one that was just called the best.
        """
        selected = self.last_epoch if self._takes_the_last else self._awaited
        if epoch != selected:
            raise RunFailed(
                f"{self.spec.method} handed in scores of epoch {epoch}; expected "
                f"{f'those of epoch {selected}' if selected else 'none'}"
            )
        self._awaited = 0
        name, labels = self.spec.method, self.observation.labels.shape[1]
        rows = len(self.observation.labelled) + len(self.observation.unlabelled)
        fitted_on = checked_scores(train_scores, (rows, labels), name)
        self.judgements.scores = checked_scores(scores, self.judged_truth.shape, name)
        self.judgements.rule_parameters = fit_rules(fitted_on, self.observation.prior)
        self.judgements.selected_epoch = epoch

    @property
    def _takes_the_last(self) -> bool:
        return self.spec.selection == "last" or self.spec.is_estimator

    def check_complete(self) -> None:
        """Raise a RunFailed if the scores of the best epoch were not handed in."""
        if self._awaited:
            raise RunFailed(f"{self.spec.method} handed in no scores of its best epoch")

    def _check_epoch(self, epoch: int, first: int) -> None:
        if not first <= epoch <= self.last_epoch:
            raise RunFailed(f"{self.spec.method} handed in values of epoch {epoch}; there is none")

    def save(self, epoch: int) -> None:
        """Mark everything up to this epoch as judged; a subclass writes it to disk."""
        self.judgements.epochs = epoch

    def _add(self, epoch: int, values: Mapping[str, float]) -> None:
        self.judgements.by_epoch.setdefault(epoch, {}).update(values)


def rows_from_train(spec: RunSpec) -> bool:
    """Whether the judged rows, if any, are training rows: the test set is then not opened."""
    return spec.judged_on != "test" or bool(spec.folds)


def judged_rows(spec: RunSpec, observation: Observation) -> RowIndex:
    """The training rows that a run of `rows_from_train` is judged on."""
    return observation.validation if spec.judged_on == "held-out" else observation.judged


def _kind_of(scores: Any) -> str:
    return (
        f"{type(scores).__name__} of {scores.dtype}"
        if hasattr(scores, "dtype")
        else type(scores).__name__
    )


def checked_scores(scores: Any, shape: tuple[int, ...], name: str) -> Float32Array:
    """The scores as float32; a ContractError unless they have the shape and lie in [0, 1].

    name: of the method.
    """
    try:
        if np.iscomplexobj(scores):  # NumPy would leave out the imaginary part
            raise TypeError
        values = np.asarray(scores, dtype=np.float32)
    except (TypeError, ValueError):
        raise ContractError(
            f"scores of {name} must be a matrix of real numbers, got {_kind_of(scores)}", "scores"
        ) from None
    if scores is None:
        raise ContractError(f"scores of {name} are None: does the function return them?", "scores")
    if values.shape != shape:
        raise ContractError(
            f"scores of {name} have shape {values.shape}, expected N × K: {shape}", "scores"
        )
    if values.size and not (values.min() >= 0 and values.max() <= 1):  # NaN fails both comparisons
        bad = values[~((values >= 0) & (values <= 1))]
        raise ContractError(
            f"scores of {name} are not all numbers in [0, 1]: {len(bad):,} of {values.size:,} are "
            f"outside, the first is {bad[0]:g}",
            "scores",
        )
    return values
