"""When a run's state goes to disk: at most once a minute, and when the run is stopped.

In between the state after the last epoch is kept in memory, so that a stop loses no whole epoch.
"""

from __future__ import annotations

import math
import os
import time

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import CheckpointSaved, Notify
from ssmlbench.core.stopping import has_unsaved_work
from ssmlbench.protocol.judge import JudgeDesk
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


class Saving:
    """Writes the states of one run, those of the judge before those of training."""

    def __init__(self, checkpoint: Checkpoint, judge: JudgeDesk, notify: Notify, seconds: float):
        """seconds: at least so many between two checkpoints."""
        self.checkpoint = checkpoint
        self.judge = judge
        self.notify = notify
        self.seconds = seconds
        self._written = time.monotonic()
        self._kept: Snapshot | None = None  # newer than the file

    def epoch_ended(self, state: TrainingState) -> None:
        """Write the state, or keep it until a checkpoint is due."""
        self._kept = None  # before there is another one: it may be large
        self._kept = state.snapshot()
        has_unsaved_work(True)
        if time.monotonic() - self._written >= self.seconds:
            self.write()

    def write(self) -> None:
        """Write the state that is kept, if there is one."""
        if self._kept is None:
            return
        epochs = self._kept.epochs
        self.judge.save(epochs)
        self.checkpoint.publish(self._kept)
        self.training_ended()
        self._written = time.monotonic()
        self.notify(CheckpointSaved(epochs))

    def training_ended(self) -> None:
        """Drop what is kept: nothing is lost without it."""
        self._kept = None
        has_unsaved_work(False)
