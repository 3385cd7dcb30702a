"""The events of a run: small typed objects that listeners are called with.

They are frozen dataclasses, which can be pickled: a worker process sends them over its pipe, a Ray task
returns them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ssmlbench.core.spec import RunSpec


@dataclass(frozen=True)
class Started:
    """A process holds the run's folder and begins to make the run."""


@dataclass(frozen=True)
class Waiting:
    """The run waits for another process; `text` says for what."""

    text: str


@dataclass(frozen=True)
class _RowsDone:
    """`done` of `total` rows of a part of the data are ready."""

    part: str  # the split; of an encoder, also the view and draw: "train strong 1"
    done: int
    total: int

    @property
    def rows(self) -> str:
        """The count, as `16/60 rows`."""
        return f"{self.done}/{self.total} rows"


@dataclass(frozen=True)
class Encoding(_RowsDone):
    """A frozen encoder has computed some rows of one view of one split."""

    @property
    def text(self) -> str:
        """The activity of the run."""
        return f"encoding {self.part}: {self.rows}"


@dataclass(frozen=True)
class Decoding(_RowsDone):
    """Some images of a split are decoded into the cache."""

    bytes: int  # of all images

    @property
    def size(self) -> str:
        """The size of all images on disk."""
        return f"{self.bytes / 2**20:,.0f} MB"

    @property
    def text(self) -> str:
        """The activity of the run."""
        return f"decoding {self.part}: {self.rows}"


@dataclass(frozen=True)
class TrainingStarted:
    """Inputs and network are ready; the first epoch begins."""


@dataclass(frozen=True)
class Resumed:
    """Training continues from a checkpoint after `epoch` epochs."""

    epoch: int


@dataclass(frozen=True)
class EpochEnded:
    """An epoch of training has ended."""

    epoch: int  # counted from 1
    epochs: int
    losses: Mapping[str, float] = field(default_factory=dict)  # term → mean over the epoch's steps
    seconds_per_epoch: float | None = None  # filled in by the heartbeat


@dataclass(frozen=True)
class CheckpointSaved:
    """The state after `epoch` epochs is on disk."""

    epoch: int


@dataclass(frozen=True)
class Warned:
    """Something the user should know; the run continues."""

    text: str
    of_data: bool = False  # true of every run on the same observed labels, whatever its method


@dataclass(frozen=True)
class Retried:
    """The run's worker died; the run starts again from its checkpoint."""

    text: str


@dataclass(frozen=True)
class Done:
    """The run finished, with this mAP (threshold rule, default convention) and training time.

    map is None for a run that was judged on nothing.
    """

    map: float | None
    seconds: float


@dataclass(frozen=True)
class AlreadyDone:
    """The run was finished already; nothing was computed."""


@dataclass(frozen=True)
class Failed:
    """The run failed, for the reason in `text`."""

    text: str


Closing = Done | AlreadyDone | Failed
"""The last event of a run."""
Event = (
    Started
    | Waiting
    | Encoding
    | Decoding
    | TrainingStarted
    | Resumed
    | EpochEnded
    | CheckpointSaved
    | Warned
    | Retried
    | Closing
)
Notify = Callable[[Event], None]
"""Called with every event of one run."""
Listener = Callable[[RunSpec, Event], None]
"""Called with every event of every run of a grid."""
