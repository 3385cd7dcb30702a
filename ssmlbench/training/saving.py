"""Decides when a run's state is written to disk: at most once a minute, and when the run is stopped.

In between, a copy of the state after the last epoch is in memory, so that a stop loses no whole epoch.
"""

from __future__ import annotations

import math
import os
import time

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import CheckpointSaved, Notify
from ssmlbench.core.stopping import has_unsaved_work
from ssmlbench.protocol.judge import JudgeInterface
from ssmlbench.training.checkpoint import Checkpoint, Snapshot, TrainingState

SECONDS = 60.0
VARIABLE = "SSMLBENCH_CHECKPOINT_SECONDS"


def seconds_between_checkpoints() -> float:
    """SSMLBENCH_CHECKPOINT_SECONDS, or a minute; 0: a checkpoint after every epoch."""
    typed = os.environ.get(VARIABLE, "")
    try:
        seconds = float(typed or SECONDS)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise UserError(f"{VARIABLE}={typed}: must be a number of seconds of at least 0")
    return seconds


class CheckpointWriter:
    """Writes the states of one run, those of the judge before those of training."""

    def __init__(
        self, checkpoint: Checkpoint, judge: JudgeInterface, notify: Notify, seconds: float
    ):
        """seconds: the least time between two checkpoints."""
        self.checkpoint = checkpoint
        self.judge = judge
        self.notify = notify
        self.seconds = seconds
        self._written = time.monotonic()
        self._unwritten: Snapshot | None = None  # newer than the file

    def epoch_ended(self, state: TrainingState) -> None:
        """Write the state if a checkpoint is due, else keep a copy of it."""
        self._unwritten = None  # free the old copy before making a new one: it may be large
        self._unwritten = state.snapshot()
        has_unsaved_work(True)
        if time.monotonic() - self._written >= self.seconds:
            self.write()

    def write(self) -> None:
        """Write the copy of the state, if there is one."""
        if self._unwritten is None:
            return
        epochs = self._unwritten.epochs
        self.judge.save(epochs)
        self.checkpoint.publish(self._unwritten)
        self.discard()
        self._written = time.monotonic()
        self.notify(CheckpointSaved(epochs))

    def discard(self) -> None:
        """Drop the copy of the state: it was written, or training has ended."""
        self._unwritten = None
        has_unsaved_work(False)
