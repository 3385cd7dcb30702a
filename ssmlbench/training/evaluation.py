"""Network outputs over many rows: pools for methods, scores, selection of an epoch, pseudo-labels graded.

The sealed truth is read here, for the history only: nothing goes back into training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ssmlbench.core.prefetch import ahead
from ssmlbench.core.seeds import stream
from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs.splits import RowNumbers, SplitInputs
from ssmlbench.kit.heads import Network
from ssmlbench.kit.method import Method
from ssmlbench.kit.pools import Outputs, Pool, Pools, RowOutputs
from ssmlbench.protocol import metrics
from ssmlbench.protocol.decisions import fit_rules
from ssmlbench.training.model import Model
from ssmlbench.training.run_data import RunData

Float32Array = npt.NDArray[np.float32]


@dataclass
class Outcome:
    """What training returns: scores of the selected weights, and the history."""

    scores: Float32Array  # N_test × K
    rule_parameters: dict[str, Float32Array]  # of the fitted decision rules
    selected_epoch: int
    steps: int
    history: list[dict[str, Any]]
    network: Network | None  # None: an estimator's
    precision: str


@dataclass
class Best:
    """The scores of the best epoch so far, under `--selection val` or `oracle`."""

    metric: float = -math.inf
    epoch: int = -1  # counted from 1
    scores: dict[str, Tensor] = field(default_factory=dict)


@dataclass
class Progress:
    """How far a run has come."""

    epoch: int = 0  # the present one, counted from 0
    steps: int = 0  # gradient steps taken
    history: list[dict[str, Any]] = field(default_factory=list)  # a row for each epoch
    best: Best = field(default_factory=Best)


class Evaluator:
    """Runs a model over rows of any number, in eval mode."""

    def __init__(
        self,
        spec: RunSpec,
        method: Method,
        model: Model,
        run_data: RunData,
        progress: Progress,
        workers: int = 0,
    ):
        self.spec = spec
        self.method = method
        self.model = model
        self.run_data = run_data
        self.progress = progress
        self.workers = workers

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
        observation, device = self.run_data.observation, self.model.device
        rows = self.run_data.rows[name]
        prior = torch.from_numpy(observation.prior)  # double: methods take int(π_k N) of it

        def predict(model: str, view: str, outputs: tuple[str, ...]) -> Outputs:
            purpose = ("pool views", name, view, self.progress.epoch)
            return self.predict(model, self.run_data.train, rows, view, purpose, outputs)

        return Pool(
            torch.from_numpy(observation.labels[rows]).to(device),
            (prior.float() if device.type == "mps" else prior).to(device),
            predict,
        )

    @torch.no_grad()
    def predict(
        self,
        model: str,
        inputs: SplitInputs,
        rows: RowNumbers,
        view: str,
        purpose: tuple[object, ...],
        names: tuple[str, ...],
    ) -> Outputs:
        """The named outputs of a network over rows, a batch at a time.

        model: "raw" or "ema". purpose: names the random stream that the view is drawn from.
        """
        network = self.model.named(model)
        was_training = network.training
        network.eval()
        pieces: dict[str, list[Tensor]] = {name: [] for name in names}
        size = self.model.batch_rows

        def load(i: int) -> Tensor:
            generator = stream(self.spec.seed, *purpose, i)
            return inputs.view(rows[i * size : (i + 1) * size], view, generator)

        threads = self.workers if inputs.on_the_fly else 0
        for batch in ahead(load, max(math.ceil(len(rows) / size), 1), threads):
            with self.model.autocast():
                outputs = network(batch.to(self.model.device, non_blocking=True))
            for name in names:
                pieces[name].append(outputs[name])
        network.train(was_training)
        return {name: torch.cat(piece) for name, piece in pieces.items()}

    def scores(self, inputs: SplitInputs, rows: RowNumbers | None = None) -> Float32Array:
        """The method's scores of some rows of a split, or of all: n × K."""
        chosen = np.arange(len(inputs)) if rows is None else rows

        def predict(model: str, view: str, outputs: tuple[str, ...]) -> Outputs:
            return self.predict(model, inputs, chosen, view, ("judged views", view), outputs)

        self.method.eval()
        with torch.no_grad():
            scores = self.method.test_scores(RowOutputs(len(chosen), predict))
        return scores.float().cpu().numpy()

    def final_scores(self) -> dict[str, Tensor]:
        """Test scores, and the parameters of the decision rules that are fitted on training scores."""
        rows = np.concatenate(list(self.run_data.rows.values()))
        train_scores = self.scores(self.run_data.train, rows)
        fitted = fit_rules(train_scores, self.run_data.observation.prior)
        return {
            "test": torch.from_numpy(self.scores(self.run_data.test)),
            **{name: torch.from_numpy(value) for name, value in fitted.items()},
        }

    def select(self) -> None:
        """Keep the present epoch's scores if the selection rule says that it is the best so far."""
        if self.spec.selection == "last":
            return
        if self.spec.selection == "val":
            rows = self.run_data.observation.validation
            truth = self.run_data.observation.labels[rows] == 1
            scores = self.scores(self.run_data.train, rows)
        else:
            truth = self.run_data.test_truth == 1
            scores = self.scores(self.run_data.test)
        precisions = metrics.average_precision(scores, truth)
        value = float(np.nanmean(precisions)) if np.isfinite(precisions).any() else 0.0
        self.progress.history[-1][f"{self.spec.selection}_map"] = value
        if value > self.progress.best.metric:
            self.progress.best = Best(value, self.progress.epoch + 1, self.final_scores())

    def outcome(self) -> Outcome:
        """What the run ends with: the last epoch's scores, or the best epoch's."""
        last = self.spec.selection == "last"
        best = self.progress.best
        scores = self.final_scores() if last else best.scores
        return Outcome(
            scores["test"].numpy(),
            {name: tensor.numpy() for name, tensor in scores.items() if name != "test"},
            self.spec.epochs if last else best.epoch,
            self.progress.steps,
            self.progress.history,
            self.model.averaged_network,
            self.spec.precision,
        )

    def grade_pseudo_labels(self) -> dict[str, float]:
        """Precision and recall of the method's pseudo-labels against the sealed truth."""
        rows = self.run_data.observation.unlabelled
        decided = self.method.pseudo_labels()
        if decided is None or self.run_data.sealed is None or not len(rows):
            return {}
        targets, trust = (tensor.detach().float().cpu().numpy() for tensor in decided)
        return self.run_data.sealed.pseudo_label_quality(rows, targets, trust)
