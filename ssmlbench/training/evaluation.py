"""Network outputs over many rows: the pools of methods, and the scores and pseudo-labels for the judge.

There is no hidden or test label here: only the judge has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ssmlbench.core.errors import ContractError, RunFailed
from ssmlbench.core.freed_memory import return_freed_memory
from ssmlbench.core.prefetch import ahead
from ssmlbench.core.seeds import stream
from ssmlbench.core.spec import RunSpec
from ssmlbench.core.suggestions import did_you_mean
from ssmlbench.inputs.splits import DeferredView, RowNumbers, SplitInputs
from ssmlbench.inputs.transfer import Transfer
from ssmlbench.kit.contract import check_pseudo_labels
from ssmlbench.kit.heads import Network
from ssmlbench.kit.method import Method
from ssmlbench.kit.pools import Outputs, Pool, Pools, RowOutputs, no_such_view
from ssmlbench.protocol.diagnostics import Float32Array
from ssmlbench.protocol.judge import Judgements, checked_scores
from ssmlbench.training.model import Model
from ssmlbench.training.recording import Recorder, Watch
from ssmlbench.training.run_data import RunData

BATCHES_OF_GAPS = 128
"""After so many batches of a pass, freed memory is returned: a million rows left gaps of half a GB."""


@dataclass
class Trained:
    """The results of training, apart from the scores: these are with the judge."""

    steps: int
    history: list[dict[str, Any]]  # a row for each epoch
    network: Network | None  # None: an estimator's
    precision: str
    notes: list[str] = field(default_factory=list)  # the method's warning, if it gave one
    micro_batch: int | None = None  # rows in the encoder at a time, at the end; None: all of a step


@dataclass
class Outcome:
    """A run's scores and history, when training and judge have ended."""

    scores: Float32Array  # N_test × K
    rule_parameters: dict[str, Float32Array]  # of the fitted decision rules
    selected_epoch: int
    steps: int
    history: list[dict[str, Any]]
    network: Network | None  # None: an estimator's
    precision: str
    notes: list[str] = field(default_factory=list)  # the method's warning, if it gave one

    @classmethod
    def of(cls, trained: Trained, judgements: Judgements) -> Outcome:
        """Join the results of training and of the judge."""
        if judgements.scores is None:
            raise RunFailed("training ended without scores")
        return cls(
            judgements.scores,
            judgements.rule_parameters,
            judgements.selected_epoch,
            trained.steps,
            [row | judgements.by_epoch.get(row["epoch"], {}) for row in trained.history],
            trained.network,
            trained.precision,
            trained.notes,
        )


@dataclass
class Progress:
    """The progress of a run."""

    epoch: int = 0  # the present one, counted from 0
    steps: int = 0  # gradient steps taken
    history: list[dict[str, Any]] = field(default_factory=list)  # a row for each epoch


def put_rows(whole: Outputs, name: str, part: Tensor, batch: range, rows: int) -> None:
    """Copy an output of a batch of rows into the output of all rows.

    An output of patches has several lines for each row. The first call allocates the whole: collecting
    the parts and joining them would need twice the memory.
    """
    lines = len(part) // max(len(batch), 1)
    if name not in whole:
        whole[name] = part.new_empty((rows * lines, *part.shape[1:]))
    whole[name][batch.start * lines : batch.stop * lines] = part


class Scorer:
    """Runs a model over any number of rows, in eval mode."""

    def __init__(self, spec: RunSpec, method: Method, model: Model, workers: int = 0):
        self.spec = spec
        self.method = method
        self.model = model
        self.workers = workers
        self.transfer = Transfer(model.device)

    @torch.no_grad()
    def predict(
        self,
        model: str,
        inputs: SplitInputs,
        rows: RowNumbers,
        view: str,
        purpose: tuple[object, ...],
        names: tuple[str, ...],
        watch: Watch | None = None,
    ) -> Outputs:
        """The named outputs of a network over rows, a batch at a time.

        model: "raw" or "ema". purpose: names the random stream that the view is drawn from. watch:
        sees all outputs of each batch.
        """
        gathered: Outputs = {}
        for start, outputs in self.passes(model, inputs, rows, view, purpose, watch):
            batch = range(start, min(start + self.model.batch_rows, len(rows)))
            for name in names:
                if name not in outputs:
                    close = did_you_mean(name, outputs)
                    raise ContractError(f"the head has no output {name!r}.{close}")
                put_rows(gathered, name, outputs[name], batch, len(rows))
        return gathered

    @torch.no_grad()
    def passes(
        self,
        model: str,
        inputs: SplitInputs,
        rows: RowNumbers,
        view: str,
        purpose: tuple[object, ...],
        watch: Watch | None = None,
        features_only: bool = False,
    ) -> Iterator[tuple[int, Outputs]]:
        """Yield, for each batch of rows, the position of its first row and all outputs of a network.

        features_only: the features alone.
        """
        network = self.model.named(model)
        if view not in inputs.views:
            raise no_such_view(view, inputs.views)
        size = self.model.batch_rows

        def load(i: int) -> list[dict[str, Tensor | DeferredView]]:
            generator = stream(self.spec.seed, *purpose, i)
            read = inputs.read(rows[i * size : (i + 1) * size])
            take = read.deferred if self.transfer.applies_views else read.view
            batch = self.transfer.trimmed(self.model.encoder, {view: take(view, generator)})
            return self.transfer.pinned([batch])

        threads = self.workers if inputs.on_the_fly else 0
        batches = ahead(load, max(math.ceil(len(rows) / size), 1), threads)
        was_training = network.training
        network.eval()
        for number, (batch,) in enumerate(self.transfer.ahead(batches)):
            outputs = self.model.predict(network, batch[view], features_only)
            if watch is not None:
                watch(number * size, outputs)
            yield number * size, outputs
            if number % BATCHES_OF_GAPS == BATCHES_OF_GAPS - 1:
                return_freed_memory()
        network.train(was_training)

    def scores(self, inputs: SplitInputs, rows: RowNumbers | None = None) -> Float32Array:
        """The method's scores of some rows of a split, or of all: n × K."""
        chosen = np.arange(len(inputs)) if rows is None else rows

        def predict(model: str, view: str, outputs: tuple[str, ...]) -> Outputs:
            return self.predict(model, inputs, chosen, view, ("judged views", view), outputs)

        self.method.eval()
        with torch.no_grad():
            scores = self.method.test_scores(RowOutputs(len(chosen), predict))
        raw = _as_array(scores, self.spec.method) if isinstance(scores, Tensor) else scores
        return checked_scores(raw, (len(chosen), self.method.labels), self.spec.method)


def _as_array(scores: Tensor, method: str) -> Float32Array:
    """The values of a tensor; a ContractError for one that has none, or that are not real numbers."""
    kind = f"{scores.layout} {scores.dtype}".replace("torch.", "")
    if scores.layout == torch.strided and not scores.is_complex():
        try:
            values: Float32Array = scores.detach().float().cpu().numpy()
        except NotImplementedError:  # a tensor of the meta device has a shape, and no values
            kind = str(scores.device)
        else:
            return values
    raise ContractError(
        f"scores of {method} must be a matrix of real numbers, got a tensor of {kind}", "scores"
    )


class Evaluator(Scorer):
    """Scores of a run's rows, for its method and for its judge."""

    def __init__(
        self,
        spec: RunSpec,
        method: Method,
        model: Model,
        run_data: RunData,
        progress: Progress,
        workers: int = 0,
        keep: Callable[[int], None] = lambda epoch: None,
    ):
        """keep: called with each epoch whose scores are handed in, to store its model."""
        super().__init__(spec, method, model, workers)
        self.run_data = run_data
        self.progress = progress
        self.keep = keep
        self.recorder = Recorder(spec, run_data)

    def pools(self, warmup_epochs: int) -> Pools:
        """The training rows as a method sees them."""
        return Pools(
            self._pool("labelled"),
            self._pool("unlabelled"),
            epochs=self.spec.epochs,
            warmup_epochs=warmup_epochs,
            views=frozenset(self.run_data.train.views),
        )

    def _pool(self, name: str) -> Pool:
        """A pool as a method gets it: copies, so that a method cannot change how it is judged."""
        observation, device = self.run_data.observation, self.model.device
        rows = self.run_data.rows[name]
        prior = torch.from_numpy(observation.prior.copy())  # double: methods take int(π_k N) of it

        def predict(model: str, view: str, outputs: tuple[str, ...]) -> Outputs:
            purpose = ("pool views", name, view, self.progress.epoch)
            watch = self.recorder.watch(name, model, view)
            return self.predict(model, self.run_data.train, rows, view, purpose, outputs, watch)

        def features(model: str, view: str) -> Iterator[tuple[int, Tensor]]:
            purpose = ("pool views", name, view, self.progress.epoch)
            watch = self.recorder.watch(name, model, view)  # it reads logits too
            train, features_only = self.run_data.train, watch is None
            passes = self.passes(model, train, rows, view, purpose, watch, features_only)
            return ((start, outputs["features"]) for start, outputs in passes)

        return Pool(
            torch.from_numpy(observation.labels[rows]).to(device),
            (prior.float() if device.type == "mps" else prior).to(device),
            predict,
            features,
        )

    def select(self) -> None:
        """Hand the present epoch's scores to the judge if it is the last, or the best so far."""
        epoch, rows = self.progress.epoch + 1, None
        if self.spec.selection == "last":
            if epoch == self.spec.epochs:
                self.hand_in(epoch)
            return
        inputs = self.run_data.test
        if self.spec.selection == "val":
            inputs, rows = self.run_data.train, self.run_data.observation.validation
        if self.run_data.judge.is_best(epoch, self.scores(inputs, rows)):
            self.hand_in(epoch)

    def hand_in(self, epoch: int) -> None:
        """Hand the judge an epoch's scores of the training rows and of the rows that are judged."""
        rows = np.concatenate(list(self.run_data.rows.values()))
        train_scores = self.scores(self.run_data.train, rows)
        self.run_data.judge.hand_in(epoch, train_scores, self.scores(self.run_data.test))
        self.keep(epoch)

    def trained(self) -> Trained:
        """The results of training."""
        return Trained(
            self.progress.steps,
            self.progress.history,
            self.model.averaged_network,
            self.spec.precision,
            [text for _, text in self.warnings()[:1]],
        )

    def warnings(self) -> list[tuple[int, str]]:
        """The method's warnings so far, each with the epoch it is about."""
        texts = [(row["epoch"], self.method.warning(row)) for row in self.progress.history]
        return [(epoch, text) for epoch, text in texts if text is not None]

    def hand_in_pseudo_labels(self) -> None:
        """Hand the method's present pseudo-labels to the judge, who grades them."""
        pseudo_labels = self.method.pseudo_labels()
        if pseudo_labels is None or not len(self.run_data.observation.unlabelled):
            return
        # numpy has no bfloat16; integers keep their type, which takes less memory.
        targets, trust = (
            (t.float() if t.is_floating_point() else t).detach().cpu().numpy()
            for t in pseudo_labels
        )
        rows = len(self.run_data.observation.unlabelled)
        check_pseudo_labels(targets, trust, rows, self.method.labels)
        trusted = trust > 0
        del pseudo_labels, trust  # a large pool: free their memory before allocating as much again
        positive = targets >= 0.5
        positive &= trusted
        self.run_data.judge.grade(self.progress.epoch + 1, positive, trusted)
