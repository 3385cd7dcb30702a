"""The training loop: warm-up on labelled rows, then epochs over both pools, its state saved on the way.

It knows no method and no data set. Batches come from batching.py, scores from evaluation.py.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ssmlbench.core.errors import Diverged, UserError
from ssmlbench.core.events import EpochEnded, Notify, Resumed, Warned
from ssmlbench.core.seeds import stream_seed
from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs.encoders import Encoder
from ssmlbench.kit.contract import UnchangedPools, check_terms, check_views
from ssmlbench.kit.gradient_step import GradientStep
from ssmlbench.kit.method import Method
from ssmlbench.kit.pools import Batch
from ssmlbench.training.batching import Batching
from ssmlbench.training.checkpoint import Checkpoint, TrainingState
from ssmlbench.training.device import peak_memory, reset_peak_memory
from ssmlbench.training.encoding import EncoderPass, normalises_batches
from ssmlbench.training.evaluation import Evaluator, Progress, Trained
from ssmlbench.training.model import Model
from ssmlbench.training.model_file import ModelFile
from ssmlbench.training.out_of_memory import BeforeStep, suppress_out_of_memory
from ssmlbench.training.processes import Processes, SharedPass
from ssmlbench.training.run_data import RunData
from ssmlbench.training.saving import Saving
from ssmlbench.training.step_log import StepLog

LARGEST_DECAY = 50.0
"""Of `--relative-decay`, before lr × decay nears 1 and every step would undo all learning."""


@dataclass(frozen=True)
class TrainingContext:
    """Where training computes, saves its state and reports; nothing here is part of the spec."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    checkpoint: Checkpoint | None = None  # None: nothing is saved
    notify: Notify = lambda event: None
    workers: int = 0  # threads that read and prepare inputs which are not in memory
    model_file: ModelFile | None = None  # None: no model is kept
    micro_batch: int | None = None  # rows in the encoder at a time; None: all of a step
    checkpoint_activations: bool = False  # of the encoder's blocks, to be computed again
    processes: Processes | None = None  # that share the run; None: this one makes it alone
    checkpoint_seconds: float = 0.0  # at least, between two checkpoints


class Trainer:
    """Trains one method on one run's data."""

    def __init__(
        self,
        spec: RunSpec,
        method: Method,
        encoder: Encoder,
        run_data: RunData,
        context: TrainingContext,
    ):
        self.spec = spec
        self.context = context
        self.method = method.to(context.device)
        self.warmup_epochs = spec.warmup_epochs if method.warm_up else 0
        trains = any(True for _ in encoder.parameters())  # fixed features pass as they are
        encoding = _encoding(context, trains)
        if spec.compile and not trains:
            raise UserError("--compile: heads on fixed features have no encoder to compile")
        self.model = Model(spec, method, encoder, context.device, encoding, self._say)
        # Whether a step is taken again; of several processes, the others would wait for it.
        self.retries = context.device.type != "cpu" and context.processes is None
        self.notes: list[str] = []
        self.width = encoder.features
        self.progress = Progress()
        self.evaluator = Evaluator(
            spec, method, self.model, run_data, self.progress, context.workers, self._keep
        )
        self.pools = self.evaluator.pools(self.warmup_epochs)
        self.unchanged = UnchangedPools(self.pools)
        self.batching = Batching(spec, method, run_data, self.model, self.pools)
        self.saving: Saving | None = None
        if context.checkpoint is not None and (
            context.processes is None or context.processes.leads
        ):
            how = (context.checkpoint, run_data.judge, context.notify, context.checkpoint_seconds)
            self.saving = Saving(*how)

    def train(self) -> Trained:
        """Train from the start, or from the last checkpoint, to the last epoch.

        Scores and pseudo-labels go to the judge of the run's data. If it is stopped, what has not been
        saved yet is saved first.
        """
        try:
            self._train()
        except KeyboardInterrupt:
            if self.saving is not None:
                self.saving.write()
            raise
        if self.saving is not None:
            self.saving.training_ended()
        return self._trained()

    def _train(self) -> None:
        torch.manual_seed(stream_seed(self.spec.seed, "setup"))
        self.method.setup(self.pools)
        self.unchanged.check("setup")
        check_views(self.method, self.pools.views)
        self.method.to(self.context.device)
        for epoch in range(self._resume(), self.spec.epochs):
            if epoch in (0, self.warmup_epochs):
                self.start_phase(epoch)
            self.train_epoch(epoch)
            self.evaluator.select()
            if self.saving is not None and epoch + 1 < self.spec.epochs:
                self.saving.epoch_ended(self._state)
        self.evaluator.recorder.finish(self.evaluator)

    def _trained(self) -> Trained:
        """What training reports, with the pieces that it computed in."""
        trained, pieces = self.evaluator.trained(), self.model.encoding.micro_batch
        notes = list(self.notes)
        if pieces is not None and normalises_batches(self.model.network):
            notes.append(f"batch normalisation saw at most {pieces} rows at a time (--micro-batch)")
        return replace(trained, notes=[*trained.notes, *notes], micro_batch=pieces)

    def _say(self, text: str) -> None:
        self.notes.append(text)
        self.context.notify(Warned(text))

    def start_phase(self, epoch: int) -> None:
        """Start warm-up or the main phase: a new optimiser, and a schedule for the phase's steps."""
        self.progress.epoch = epoch
        first, last = (
            (0, self.warmup_epochs) if self.warming_up else (self.warmup_epochs, self.spec.epochs)
        )
        groups = [
            *self._network_groups(),
            *self.method.parameter_groups(self.spec.lr),
        ]
        self.optimiser = torch.optim.AdamW(
            groups, lr=self.spec.lr, weight_decay=self.spec.weight_decay, fused=True
        )
        # A tuple: methods are given it, and cannot change it.
        self.parameters = tuple(weight for group in groups for weight in group["params"])
        steps = max((last - first) * self.batching.steps_an_epoch(self.warming_up), 2)
        with warnings.catch_warnings():  # torch wants optimiser.step() to be called once before
            warnings.simplefilter("ignore")
            self.scheduler = torch.optim.lr_scheduler.OneCycleLR(
                self.optimiser,
                max_lr=[group["lr"] for group in groups],
                total_steps=steps,
                pct_start=max(0.2, 1.5 / steps),  # torch divides by the length of the rise
            )
        with torch.no_grad():
            self.method.start_phase(self.model.network)
        self.method.optimisers = self.method.build_optimisers(self.model.network)
        self.model.ema.restart()

    def _network_groups(self) -> list[dict[str, Any]]:
        """The network's weights for the optimiser; matrices on fixed features decay by D / n.

        n counts the rows that the phase trains on: the fewer they are, the smaller the weights
        should stay. The length of a weight means nothing under a cosine head: there is no such decay.
        """
        spec, weights = self.spec, self.model.trained_weights
        if not spec.relative_decay or self.method.head == "cosine":
            return [{"params": weights, "lr": spec.lr}]
        mixed = self.batching.mixes_pools(self.warming_up)
        rows = len(self.pools.labelled) + (len(self.pools.unlabelled) if mixed else 0)
        decay = min(spec.relative_decay * self.width / max(rows, 1), LARGEST_DECAY)
        decay += spec.weight_decay
        matrices = [weight for weight in weights if weight.ndim > 1]
        others = [weight for weight in weights if weight.ndim <= 1]
        return [
            {"params": matrices, "lr": spec.lr, "weight_decay": decay},
            *([{"params": others, "lr": spec.lr}] if others else []),
        ]

    @property
    def warming_up(self) -> bool:
        """Whether the present epoch is one of warm-up."""
        return self.progress.epoch < self.warmup_epochs

    def train_epoch(self, epoch: int) -> None:
        """Take every gradient step of an epoch, and add its row to the history."""
        began = time.perf_counter()
        reset_peak_memory(self.context.device)
        self.start_epoch(epoch)
        plan = self.batching.plan(epoch, self.warming_up)
        log = StepLog("loss" if type(self.method).step is Method.step else "step")
        for labelled, unlabelled in self.batching.batches(plan, self.context.workers):
            update, terms = self.take_step(labelled, unlabelled)
            self.apply(update)
            log.add(terms, self.method.diagnostics)
        means = log.means(len(plan))
        self._check_finite(means, log)
        self.progress.steps += len(plan)
        seconds = time.perf_counter() - began
        self.progress.history.append(
            {
                "epoch": epoch + 1,
                "phase": "warm-up" if self.warming_up else "semi",
                "steps": self.progress.steps,
                "lr": update.lr,
                "seconds": seconds,
                "samples_per_second": plan.rows / seconds,
                "peak_memory_mb": peak_memory(self.context.device),
                **means,
            }
        )
        losses = {name: mean for name, mean in means.items() if name.startswith("loss_")}
        self.context.notify(EpochEnded(epoch + 1, self.spec.epochs, losses))
        for warned, text in self.evaluator.warnings()[:1]:
            if warned == epoch + 1:  # the first of the run: later ones would repeat it
                self.context.notify(Warned(text))

    def start_epoch(self, epoch: int) -> None:
        """Prepare network and method for an epoch's steps; new pseudo-labels go to the judge."""
        self.progress.epoch = epoch
        torch.manual_seed(stream_seed(self.spec.seed, "epoch", epoch))
        if not self.warming_up:
            self.pools.epoch = epoch + 1
            with torch.no_grad():
                self.method.start_epoch(self.pools)
            self.unchanged.check("start_epoch")
            self.pools.forget()
            self.evaluator.hand_in_pseudo_labels()
        self.evaluator.recorder.record(self.evaluator, epoch)
        if self.context.processes is not None:
            self.context.processes.agree(self.model.tensors())
            self.context.processes.agree(self.method.state_dict().values())
        self.model.network.train()
        self.method.train()
        self.method.start_steps(self.model.network)

    def take_step(
        self, labelled: Batch, unlabelled: Batch | None
    ) -> tuple[GradientStep, dict[str, Tensor]]:
        """Have the method compute gradients; again with smaller pieces if memory did not suffice."""
        if not self.retries:
            return self._step(labelled, unlabelled)
        before = BeforeStep(self.model.network, self.method, self.context.device)
        encoding, began_with = self.model.encoding, self.model.encoding.micro_batch
        while True:
            with suppress_out_of_memory(self.context.device):
                taken = self._step(labelled, unlabelled)
                if encoding.micro_batch != began_with:
                    self._say(
                        f"out of memory: {encoding.micro_batch} rows at a time go through the "
                        "encoder from now on"
                    )
                return taken
            for batch in (labelled, unlabelled):
                if batch is not None:
                    batch.forward.forget()
                    batch.ema_forward.forget()
            before.restore()
            encoding.shrink()

    def _step(
        self, labelled: Batch, unlabelled: Batch | None
    ) -> tuple[GradientStep, dict[str, Tensor]]:
        update = self.gradient_step(labelled)
        terms = self.method.step(labelled, unlabelled, update)
        check_terms(terms, "step")
        return update, terms

    def gradient_step(self, labelled: Batch) -> GradientStep:
        """What a method is given to take one step with."""
        lr = self.optimiser.param_groups[0]["lr"]
        return GradientStep(
            self.model.network,
            self.parameters,
            self.model.scaler,
            forward=labelled.forward,
            lr=lr,
        )

    def apply(self, update: GradientStep) -> None:
        """Apply a step's gradients: optimiser, schedule, averaged weights."""
        update.apply(self.optimiser)
        update.finish()
        for parameter in self.parameters:  # zero_grad, without its detour by the profiler
            parameter.grad = None
        self.scheduler.step()
        self.model.ema.update()

    def _check_finite(self, means: Mapping[str, float], log: StepLog) -> None:
        bad = [n for n, mean in means.items() if n.startswith("loss_") and not math.isfinite(mean)]
        if not bad and self.model.has_finite_weights():
            return
        epoch = self.progress.epoch + 1
        step, first = log.first_not_finite()
        if first and (step == 1 or len(first) == 1 or len(first) < log.terms_in(step)):
            # Later steps have weights that are not finite: their other terms are only a consequence.
            named = ", ".join(map(repr, first))
            raise Diverged(
                f"term {named} is not finite in epoch {epoch}, step {step}; does it divide by 0 or "
                "take the log or root of 0? Else try a smaller --lr",
                "loss",
                first[0],
            )
        raise Diverged(
            f"the weights are not finite in epoch {epoch}; try a smaller --lr (a term that is finite "
            "can have a gradient that is not: the root, norm or log of 0)",
            "loss",
        )

    @property
    def _state(self) -> TrainingState:
        return TrainingState(self.model, self.method, self.optimiser, self.scheduler, self.progress)

    def _keep(self, epoch: int) -> None:
        if self.context.model_file is not None:
            self.context.model_file.keep_network(epoch, self.model, self.method)

    def _resume(self) -> int:
        """Restore the last checkpoint: the epoch to continue with, 0 if there is none."""
        stored = self.context.checkpoint.read() if self.context.checkpoint else None
        if stored is None or stored.epochs > self.evaluator.run_data.judged_epochs:
            return 0  # the judge has lost what the first epochs were worth
        epochs = stored.epochs
        self.start_phase(epochs - 1)
        self._state.restore(stored)
        self.context.notify(Resumed(epochs))
        return epochs


def _encoding(context: TrainingContext, trains: bool) -> EncoderPass:
    """How rows go through the encoder. trains: whether it has weights."""
    if not trains:
        if context.processes is not None:
            raise UserError("--gpus: heads on fixed features train on one device; leave it out")
        return EncoderPass()
    how = (context.micro_batch, context.checkpoint_activations)
    return EncoderPass(*how) if context.processes is None else SharedPass(context.processes, *how)
