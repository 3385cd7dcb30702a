"""The training loop: warm-up on labelled rows, then epochs over both pools, with checkpoints in between.

It knows no method and no data set. Batches come from batching.py, scores from evaluation.py.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ssmlbench.core.errors import ContractError, UserError
from ssmlbench.core.events import EpochEnded, Notify, Resumed, Warned
from ssmlbench.core.freed_memory import freed_memory_kept, reuse_small_blocks
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
from ssmlbench.training.optimiser import adamw, network_groups, one_cycle
from ssmlbench.training.out_of_memory import StepBackup, suppress_out_of_memory
from ssmlbench.training.processes import Processes, SharedPass
from ssmlbench.training.run_data import RunData
from ssmlbench.training.saving import CheckpointWriter
from ssmlbench.training.step_log import StepLog


@dataclass(frozen=True)
class TrainingContext:
    """Where training computes, saves its state and reports; nothing in it is part of the spec."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    checkpoint: Checkpoint | None = None  # None: nothing is saved
    notify: Notify = lambda event: None
    workers: int = 0  # threads that read and prepare inputs which are not in memory
    model_file: ModelFile | None = None  # None: no model is stored
    micro_batch: int | None = None  # rows in the encoder at a time; None: all of a step
    checkpoint_activations: bool = False  # recompute the activations of the encoder's blocks
    processes: Processes | None = None  # the processes that share the run; None: only this one
    checkpoint_seconds: float = 0.0  # the least time between two checkpoints


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
        self.trains_encoder = any(True for _ in encoder.parameters())  # false for fixed features
        encoding = _encoding(context, self.trains_encoder)
        if spec.compile and not self.trains_encoder:
            raise UserError("--compile: heads on fixed features have no encoder to compile")
        self.model = Model(spec, method, encoder, context.device, encoding, self._warn)
        # Whether a step that ran out of memory is repeated. With several processes it is not: the
        # others would wait for this one.
        self.retries = context.device.type != "cpu" and context.processes is None
        self.notes: list[str] = []
        self.width = encoder.features
        self.progress = Progress()
        self.evaluator = Evaluator(
            spec, method, self.model, run_data, self.progress, context.workers, self._store_model
        )
        self.pools = self.evaluator.pools(self.warmup_epochs)
        self.unchanged = UnchangedPools(self.pools)
        self.batching = Batching(spec, method, run_data, self.model, self.pools)
        self.writer: CheckpointWriter | None = None
        leads = context.processes is None or context.processes.leads
        if context.checkpoint is not None and leads:
            self.writer = CheckpointWriter(
                context.checkpoint, run_data.judge, context.notify, context.checkpoint_seconds
            )

    def train(self) -> Trained:
        """Train from the start, or from the last checkpoint, to the last epoch.

        Scores and pseudo-labels go to the judge of the run's data. If the run is stopped, its state
        is written first.
        """
        try:
            reuse_small_blocks()
            # On a CPU each step of an encoder makes the same large tensors again. With fixed features the
            # large tensors are those of whole pools: keeping their memory leaves gaps.
            keep = self.trains_encoder and self.context.device.type == "cpu"
            with freed_memory_kept() if keep else nullcontext():
                self._train()
        except KeyboardInterrupt:
            if self.writer is not None:
                self.writer.write()
            raise
        if self.writer is not None:
            self.writer.discard()
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
            if self.writer is not None and epoch + 1 < self.spec.epochs:
                self.writer.epoch_ended(self._state)
        self.evaluator.recorder.finish(self.evaluator)

    def _trained(self) -> Trained:
        """The results of training, with notes on the steps that were computed in pieces."""
        trained, rows = self.evaluator.trained(), self.model.encoding.micro_batch
        notes = list(self.notes)
        if rows is not None and normalises_batches(self.model.network):
            notes.append(f"batch normalisation saw at most {rows} rows at a time (--micro-batch)")
        return replace(trained, notes=[*trained.notes, *notes], micro_batch=rows)

    def _warn(self, text: str) -> None:
        self.notes.append(text)
        self.context.notify(Warned(text))

    def start_phase(self, epoch: int) -> None:
        """Start warm-up or the main phase: a new optimiser, and a schedule for the phase's steps."""
        self.progress.epoch = epoch
        epochs = self.warmup_epochs if self.warming_up else self.spec.epochs - self.warmup_epochs
        mixed = self.batching.mixes_pools(self.warming_up)
        rows = len(self.pools.labelled) + (len(self.pools.unlabelled) if mixed else 0)
        groups = [
            *network_groups(
                self.spec,
                self.method.head_of(self.method.config),
                self.model.trained_weights,
                self.width,
                rows,
            ),
            *self.method.parameter_groups(self.spec.lr),
        ]
        self.optimiser = adamw(self.spec, groups)
        # A tuple, so that methods cannot change it.
        self.parameters = tuple(weight for group in groups for weight in group["params"])
        steps = epochs * self.batching.steps_an_epoch(self.warming_up)
        self.scheduler = one_cycle(self.optimiser, steps)
        with torch.no_grad():
            self.method.start_phase(self.model.network)
        self.method.optimisers = _by_name(self.method.build_optimisers(self.model.network))
        self.model.ema.restart()

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
        log.check_finite(epoch + 1, means, self.model.has_finite_weights())
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
            self.context.processes.broadcast(self.model.tensors())
            self.context.processes.broadcast(self.method.state_dict().values())
        self.model.network.train()
        self.method.train()
        self.method.start_steps(self.model.network)

    def take_step(
        self, labelled: Batch, unlabelled: Batch | None
    ) -> tuple[GradientStep, dict[str, Tensor]]:
        """Have the method compute gradients; repeat with smaller pieces while memory runs out."""
        if not self.retries:
            return self._step(labelled, unlabelled)
        backup = StepBackup(self.model.network, self.method, self.context.device)
        encoding, rows_before = self.model.encoding, self.model.encoding.micro_batch
        while True:
            with suppress_out_of_memory(self.context.device):
                taken = self._step(labelled, unlabelled)
                if encoding.micro_batch != rows_before:
                    self._warn(
                        f"out of memory: {encoding.micro_batch} rows at a time go through the "
                        "encoder from now on"
                    )
                return taken
            for batch in (labelled, unlabelled):
                if batch is not None:
                    batch.forward.forget()
                    batch.ema_forward.forget()
            backup.restore()
            encoding.shrink()

    def _step(
        self, labelled: Batch, unlabelled: Batch | None
    ) -> tuple[GradientStep, dict[str, Tensor]]:
        update = self.gradient_step(labelled)
        terms = self.method.step(labelled, unlabelled, update)
        check_terms(terms, "step")
        return update, terms

    def gradient_step(self, labelled: Batch) -> GradientStep:
        """The argument `update` of `Method.step`."""
        return GradientStep(
            self.model.network,
            self.parameters,
            self.model.scaler,
            forward=labelled.forward,
            lr=self.optimiser.param_groups[0]["lr"],
        )

    def apply(self, update: GradientStep) -> None:
        """Apply a step's gradients: optimiser, schedule, averaged weights."""
        update.apply(self.optimiser)
        update.finish()
        for parameter in self.parameters:  # optimiser.zero_grad() without its overhead
            parameter.grad = None
        self.scheduler.step()
        self.model.ema.update()

    @property
    def _state(self) -> TrainingState:
        return TrainingState(self.model, self.method, self.optimiser, self.scheduler, self.progress)

    def _store_model(self, epoch: int) -> None:
        if self.context.model_file is not None:
            self.context.model_file.keep_network(epoch, self.model, self.method)

    def _resume(self) -> int:
        """Restore the last checkpoint, if there is one; the epoch to continue with."""
        stored = self.context.checkpoint.read() if self.context.checkpoint else None
        if stored is None or stored.epochs > self.evaluator.run_data.judged_epochs:
            return 0  # the judge has lost its judgements of some of these epochs
        epochs = stored.epochs
        self.start_phase(epochs - 1)
        self._state.restore(stored)
        self.context.notify(Resumed(epochs))
        return epochs


def _by_name(optimisers: object) -> dict[str, torch.optim.Optimizer]:
    """What a method's `build_optimisers` returned; a ContractError if it is not a dictionary of them."""
    if isinstance(optimisers, dict):
        strange = [one for one in optimisers.values() if not isinstance(one, torch.optim.Optimizer)]
        if not strange:
            return optimisers
        returned = f"a dictionary with a {type(strange[0]).__name__}"
    else:
        returned = "nothing" if optimisers is None else f"a {type(optimisers).__name__}"
    raise ContractError(
        f"build_optimisers returned {returned}; expected optimisers by name, e.g. "
        '{"mine": torch.optim.Adam(…)}',
        member="build_optimisers",
    )


def _encoding(context: TrainingContext, has_weights: bool) -> EncoderPass:
    """The pass of rows through the encoder. has_weights: false for fixed features."""
    if not has_weights:
        if context.processes is not None:
            raise UserError("--gpus: heads on fixed features train on one device; leave it out")
        return EncoderPass()
    options = (context.micro_batch, context.checkpoint_activations)
    if context.processes is None:
        return EncoderPass(*options)
    return SharedPass(context.processes, *options)
