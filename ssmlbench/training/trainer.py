"""The training loop, as the protocol reads: warm-up on labelled rows, then epochs over the unlabelled
pool with labelled rows alongside, one checkpoint an epoch, scores of the EMA weights at the end.

It knows no method and no data set, and holds the sealed truth only to hand decisions to the audit.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ssmlbench.core.errors import Diverged
from ssmlbench.core.events import CheckpointSaved, EpochEnded, Notify, Resumed
from ssmlbench.core.prefetch import ahead
from ssmlbench.core.seeds import stream, stream_seed
from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs.encoders import Encoder
from ssmlbench.inputs.splits import SplitInputs
from ssmlbench.kit.gradient_step import GradientStep
from ssmlbench.kit.heads import Network, build_projection
from ssmlbench.kit.method import Method
from ssmlbench.kit.pools import Batch, Forward, Outputs, Pool, Pools, RowOutputs
from ssmlbench.protocol import metrics
from ssmlbench.training.batching import EpochPlan, plan_epoch, steps_an_epoch
from ssmlbench.training.checkpoint import (
    Checkpoint,
    optimiser_facts,
    optimiser_tensors,
    restore_optimiser,
)
from ssmlbench.training.device import mixed_precision, peak_memory, reset_peak_memory
from ssmlbench.training.ema import Ema
from ssmlbench.training.run_data import RunData

Scores = npt.NDArray[np.float32]
StepInputs = dict[tuple[str, str], Tensor]
"""Inputs by (pool, view)."""


@dataclass
class Outcome:
    """What training leaves: scores of the selected weights, and how it went."""

    scores: Scores  # N_test × K
    thresholds: Scores  # K, of the `calibrated` decision rule
    selected_epoch: int
    steps: int
    history: list[dict[str, Any]]
    network: Network
    precision: str


@dataclass
class Best:
    """The scores of the best epoch so far, under `--selection val` or `oracle`."""

    metric: float = -math.inf
    epoch: int = -1
    scores: dict[str, Tensor] = field(default_factory=dict)


class Trainer:
    def __init__(
        self,
        spec: RunSpec,
        method: Method,
        encoder: Encoder,
        material: RunData,
        device: torch.device,
        checkpoint: Checkpoint,
        notify: Notify = lambda event: None,
        workers: int = 0,
    ):
        """workers: threads that read and prepare inputs which are not in memory."""
        self.spec = spec
        self.material = material
        self.device = device
        self.checkpoint = checkpoint
        self.notify = notify
        self.workers = workers
        self.batch_rows = encoder.batch_rows
        self.autocast, self.scaler = mixed_precision(device, spec.precision)
        projection, width = build_projection(spec.projection, encoder.features)
        self.method = method.to(device)
        self.network = Network(encoder, projection, method.build_head(width)).to(device)
        self.warmup_epochs = spec.warmup_epochs if method.warm_up else 0
        self.rows = {
            "labelled": material.observation.labelled,
            "unlabelled": material.observation.unlabelled,
        }
        self.pools = Pools(
            self._pool("labelled"),
            self._pool("unlabelled"),
            epochs=spec.epochs,
            warmup_epochs=self.warmup_epochs,
            views=frozenset(material.train.views),
        )
        self.epoch = 0
        self.steps = 0
        self.history: list[dict[str, Any]] = []
        self.best = Best()
        self.ema = Ema(self.network, spec.ema_decay)

    # ------------------------------------------------------------------ the protocol, top to bottom

    def train(self) -> Outcome:
        torch.manual_seed(stream_seed(self.spec.seed, "setup"))
        self.method.setup(self.pools)
        self.method.to(self.device)
        first = self._resume()
        for epoch in range(first, self.spec.epochs):
            self.epoch = epoch
            if epoch in (0, self.warmup_epochs):
                self._start_phase()
            self._train_epoch()
            self._select()
            if epoch + 1 < self.spec.epochs:
                self._save()
        return self._outcome()

    @property
    def warming_up(self) -> bool:
        return self.epoch < self.warmup_epochs

    def _start_phase(self) -> None:
        """A new optimiser and one-cycle schedule, planned for the steps this phase will really take."""
        first, last = (
            (0, self.warmup_epochs) if self.warming_up else (self.warmup_epochs, self.spec.epochs)
        )
        groups = [
            {"params": list(self.network.parameters()), "lr": self.spec.lr},
            *self.method.parameter_groups(self.spec.lr),
        ]
        self.optimiser = torch.optim.AdamW(
            groups, lr=self.spec.lr, weight_decay=self.spec.weight_decay, fused=True
        )
        steps = max((last - first) * self._steps_an_epoch(), 2)
        with warnings.catch_warnings():  # torch wants optimiser.step() to be called once before
            warnings.simplefilter("ignore")
            self.scheduler = torch.optim.lr_scheduler.OneCycleLR(
                self.optimiser,
                max_lr=[group["lr"] for group in groups],
                total_steps=steps,
                pct_start=max(0.2, 1.5 / steps),  # torch divides by the length of the rise
            )
        with torch.no_grad():
            self.method.start_phase(self.network)
        self.method.optimisers = self.method.build_optimisers(self.network)
        self.ema.restart()

    def _train_epoch(self) -> None:
        began = time.perf_counter()
        reset_peak_memory(self.device)
        torch.manual_seed(stream_seed(self.spec.seed, "epoch", self.epoch))
        quality: dict[str, float] = {}
        if not self.warming_up:
            self.pools.epoch = self.epoch + 1
            with torch.no_grad():
                self.method.start_epoch(self.pools)
            self.pools.forget()
            quality = self._audit()
        plan = self._plan()
        self.network.train()
        self.method.train()
        self.method.start_steps(self.network)
        parameters = [p for g in self.optimiser.param_groups for p in g["params"]]
        logged: dict[str, list[Tensor]] = {}
        threads = self.workers if self.material.train.on_the_fly else 0
        loaded = ahead(lambda step: self._step_inputs(plan, step), len(plan), threads)
        for i, inputs in enumerate(loaded):
            labelled, unlabelled = self._batches(plan.positions(i), inputs)
            lr = self.optimiser.param_groups[0]["lr"]
            update = GradientStep(
                self.network, parameters, self.scaler, forward=labelled.forward, lr=lr
            )
            terms = self.method.step(labelled, unlabelled, update)
            self._apply(update)
            for name, term in terms.items():
                logged.setdefault(f"loss_{name}", []).append(term.detach())
            for name, value in self.method.diagnostics.items():
                logged.setdefault(name, []).append(value.detach())
        means = {name: float(torch.stack(v).sum()) / len(plan) for name, v in logged.items()}
        bad = [n for n, mean in means.items() if n.startswith("loss_") and not math.isfinite(mean)]
        if bad or not self._finite_weights():
            raise Diverged(
                f"{', '.join(bad) or 'the weights'} not finite in epoch {self.epoch + 1}; "
                "try a smaller --lr"
            )
        self.steps += len(plan)
        seconds = time.perf_counter() - began
        seen = sum(map(len, plan.labelled)) + sum(map(len, plan.unlabelled or []))
        self.history.append(
            {
                "epoch": self.epoch + 1,
                "phase": "warm-up" if self.warming_up else "semi",
                "steps": self.steps,
                "lr": lr,
                "seconds": seconds,
                "samples_per_second": seen / seconds,
                "peak_memory_mb": peak_memory(self.device),
                **means,
                **quality,
            }
        )
        losses = {
            name.removeprefix("loss_"): mean
            for name, mean in means.items()
            if name.startswith("loss_")
        }
        self.notify(EpochEnded(self.epoch + 1, self.spec.epochs, losses))

    def _apply(self, update: GradientStep) -> None:
        update.apply(self.optimiser)
        update.finish()
        for group in self.optimiser.param_groups:  # zero_grad, without its detour by the profiler
            for parameter in group["params"]:
                parameter.grad = None
        self.scheduler.step()
        self.ema.update()

    def _select(self) -> None:
        """Keep this epoch's scores if the selection rule says it is the best so far."""
        if self.spec.selection == "last":
            return
        if self.spec.selection == "val":
            rows = self.material.observation.validation
            truth = self.material.observation.labels[rows] == 1
            scores = self._scores(self.material.train, rows)
        else:
            truth = self.material.test_truth == 1
            scores = self._scores(self.material.test)
        precisions = metrics.average_precision(scores, truth)
        value = float(np.nanmean(precisions)) if np.isfinite(precisions).any() else 0.0
        self.history[-1][f"{self.spec.selection}_map"] = value
        if value > self.best.metric:
            self.best = Best(value, self.epoch + 1, self._final_scores())

    def _outcome(self) -> Outcome:
        last = self.spec.selection == "last"
        kept = self._final_scores() if last else self.best.scores
        return Outcome(
            kept["test"].numpy(),
            kept["thresholds"].numpy(),
            self.spec.epochs if last else self.best.epoch,
            self.steps,
            self.history,
            cast(Network, self.ema.network),
            self.spec.precision,
        )

    def _final_scores(self) -> dict[str, Tensor]:
        """Test scores, and the thresholds at which training rows are positive as often as labelled."""
        seen = np.concatenate(list(self.rows.values()))
        thresholds = metrics.calibrated_thresholds(
            self._scores(self.material.train, seen), self.material.observation.prior
        )
        return {
            "test": torch.from_numpy(self._scores(self.material.test)),
            "thresholds": torch.from_numpy(np.asarray(thresholds, dtype=np.float32)),
        }

    # ------------------------------------------------------------------ rows, views and forward passes

    def _steps_an_epoch(self) -> int:
        labelled, unlabelled = len(self.pools.labelled), len(self.pools.unlabelled)
        return steps_an_epoch(self.spec, labelled, unlabelled, self.warming_up)

    def _plan(self) -> EpochPlan:
        labelled, unlabelled = len(self.pools.labelled), len(self.pools.unlabelled)
        mixed = bool(unlabelled and self.method.unlabelled_views and not self.warming_up)
        steps = self._steps_an_epoch()
        return plan_epoch(self.spec, self.epoch, steps, labelled, unlabelled, mixed)

    def _step_inputs(self, plan: EpochPlan, step: int) -> tuple[StepInputs, StepInputs]:
        """What the network and the averaged network see in a step.

        Drawn from the seed, the epoch and the step alone: steps can be made ahead in any order.
        """
        views = stream(self.spec.seed, "views", self.epoch, step)
        method = self.method
        wanted = {"labelled": method.labelled_views, "unlabelled": method.unlabelled_views}
        averaged = {"labelled": (), "unlabelled": method.unlabelled_ema_views}
        positions = plan.positions(step)
        return self._inputs(positions, wanted, views), self._inputs(positions, averaged, views)

    def _inputs(
        self,
        positions: Mapping[str, Tensor],
        wanted: Mapping[str, tuple[str, ...]],
        views: torch.Generator,
    ) -> StepInputs:
        return {
            (pool, view): self.material.train.view(self.rows[pool][where.numpy()], view, views)
            for pool, where in positions.items()
            for view in wanted[pool]
        }

    def _batches(
        self, positions: Mapping[str, Tensor], inputs: tuple[StepInputs, StepInputs]
    ) -> tuple[Batch, Batch | None]:
        seen, seen_by_ema = (
            {part: tensor.to(self.device, non_blocking=True) for part, tensor in parts.items()}
            for parts in inputs
        )
        forward, ema = Forward(self._run_network, seen), Forward(self._run_ema, seen_by_ema)
        batches = {}
        for name, where in positions.items():
            where = where.to(self.device)
            observed = getattr(self.pools, name).observed[where]
            batches[name] = Batch(name, where, observed, forward, ema)
        return batches["labelled"], batches.get("unlabelled")

    @torch.no_grad()
    def _run_ema(self, inputs: Tensor) -> Outputs:
        with self.autocast():
            return self.ema.network(inputs)

    def _run_network(self, inputs: Tensor) -> Outputs:
        with self.autocast():
            return self.network(inputs)

    def _pool(self, name: str) -> Pool:
        observation, rows = self.material.observation, self.rows[name]
        prior = torch.from_numpy(observation.prior)  # double: int(π_k N) is taken of it

        def predict(model: str, view: str, wanted: tuple[str, ...]) -> Outputs:
            purpose = ("pool views", name, view, self.epoch)
            return self._predict(model, self.material.train, rows, view, purpose, wanted)

        return Pool(
            torch.from_numpy(observation.labels[rows]).to(self.device),
            (prior.float() if self.device.type == "mps" else prior).to(self.device),
            predict,
        )

    @torch.no_grad()
    def _predict(
        self,
        model: str,
        inputs: SplitInputs,
        rows: npt.NDArray[np.int64],
        view: str,
        purpose: tuple[object, ...],
        wanted: tuple[str, ...],
    ) -> Outputs:
        """Outputs in eval mode over rows of any number, O(batch) beside what is wanted."""
        network = {"raw": self.network, "ema": self.ema.network}[model]
        was_training = network.training
        network.eval()
        pieces: dict[str, list[Tensor]] = {name: [] for name in wanted}
        size = self.batch_rows

        def load(i: int) -> Tensor:
            views = stream(self.spec.seed, *purpose, i)
            return inputs.view(rows[i * size : (i + 1) * size], view, views)

        threads = self.workers if inputs.on_the_fly else 0
        for batch in ahead(load, max(math.ceil(len(rows) / size), 1), threads):
            with self.autocast():
                outputs = network(batch.to(self.device, non_blocking=True))
            for name in wanted:
                pieces[name].append(outputs[name])
        network.train(was_training)
        return {name: torch.cat(piece) for name, piece in pieces.items()}

    def _scores(self, inputs: SplitInputs, rows: npt.NDArray[np.int64] | None = None) -> Scores:
        where = np.arange(len(inputs)) if rows is None else rows

        def predict(model: str, view: str, wanted: tuple[str, ...]) -> Outputs:
            purpose = ("judged views", view)
            return self._predict(model, inputs, where, view, purpose, wanted)

        self.method.eval()
        with torch.no_grad():
            return self.method.test_scores(RowOutputs(len(where), predict)).float().cpu().numpy()

    def _audit(self) -> dict[str, float]:
        made = self.method.pseudo_labels()
        if made is None or self.material.sealed is None or not len(self.pools.unlabelled):
            return {}
        targets, trust = (tensor.detach().float().cpu().numpy() for tensor in made)
        return self.material.sealed.pseudo_label_quality(self.rows["unlabelled"], targets, trust)

    def _finite_weights(self) -> bool:
        return all(bool(p.isfinite().all()) for p in self.network.parameters())

    # ------------------------------------------------------------------ between two lives of a run

    def _save(self) -> None:
        self.checkpoint.write(
            {
                "network": self.network.state_dict(),
                "ema": self.ema.network.state_dict(),
                "method": self.method.state_dict(),
                "best": self.best.scores,
                **{f"optimiser {k}": optimiser_tensors(o) for k, o in self._optimisers()},
            },
            {
                "epoch": self.epoch + 1,
                "steps": self.steps,
                "history": self.history,
                "ema_updates": self.ema.updates,
                "optimisers": {k: optimiser_facts(o) for k, o in self._optimisers()},
                "scheduler": {
                    k: v for k, v in self.scheduler.state_dict().items() if not callable(v)
                },
                "scaler": self.scaler.state_dict() if self.scaler else None,
                "best": [self.best.metric, self.best.epoch],
            },
        )
        self.notify(CheckpointSaved(self.epoch + 1))

    def _optimisers(self) -> list[tuple[str, torch.optim.Optimizer]]:
        return [("trainer", self.optimiser), *self.method.optimisers.items()]

    def _resume(self) -> int:
        """The epoch to go on from: 0, or the one after the last checkpoint."""
        stored = self.checkpoint.read()
        if stored is None:
            return 0
        tensors, facts = stored
        self.epoch = facts["epoch"] - 1
        self._start_phase()
        self.network.load_state_dict(tensors["network"])
        self.ema.network.load_state_dict(tensors["ema"])
        self.ema.updates = facts["ema_updates"]
        self.method.load_state(tensors.get("method", {}))
        self.method.to(self.device)
        for name, optimiser in self._optimisers():
            restore_optimiser(
                optimiser, tensors.get(f"optimiser {name}", {}), facts["optimisers"][name]
            )
        self.scheduler.load_state_dict(facts["scheduler"])
        if self.scaler:
            self.scaler.load_state_dict(facts["scaler"])
        self.steps, self.history = facts["steps"], facts["history"]
        metric, epoch = facts["best"]
        self.best = Best(metric, epoch, tensors.get("best", {}))
        self.notify(Resumed(facts["epoch"]))
        return facts["epoch"]
