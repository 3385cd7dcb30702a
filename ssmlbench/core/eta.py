"""Estimates of the time that a run or a grid still needs, from the wall time of its epochs."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence

LAST_EPOCHS = 5
"""Epochs that the estimate is made from: few, since warm-up epochs are cheaper than the others."""


class EpochTimer:
    """Measures how long the last epochs took; call `tick` at the end of each."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._last = clock()
        self._seconds: deque[float] = deque(maxlen=LAST_EPOCHS)

    def restart(self) -> None:
        """Start the next epoch now: the time before (loading, encoding) does not count."""
        self._last = self._clock()

    def tick(self) -> None:
        """End an epoch, and start the next one."""
        now = self._clock()
        self._seconds.append(now - self._last)
        self._last = now

    @property
    def seconds_per_epoch(self) -> float | None:
        """The median of the last epochs; None before the first has ended."""
        return statistics.median(self._seconds) if self._seconds else None


def run_eta(
    epoch: int, epochs: int, seconds_per_epoch: float | None, since_epoch: float
) -> float | None:
    """Seconds left of a run that has made `epoch` epochs, the last one `since_epoch` seconds ago.

    None before the first epoch has ended. An epoch that takes longer than usual counts as about to end.
    """
    if seconds_per_epoch is None:
        return None
    return max(0.0, (epochs - epoch) * seconds_per_epoch - min(since_epoch, seconds_per_epoch))


def grid_eta(
    running: Sequence[float | None], waiting: int, whole_run: float | None
) -> float | None:
    """Seconds left of a grid; None before any run has an estimate.

    It is made of the runs' own estimates, so that the two never contradict each other.
    running: seconds left of each run that is being made. whole_run: seconds of one from start to end.
    """
    known = [eta for eta in running if eta is not None]
    if not known or (whole_run is None and (waiting or len(known) < len(running))):
        return None
    unknown = len(running) - len(known)
    work = sum(known) + (waiting + unknown) * (whole_run or 0.0)
    return max(*known, work / len(running), (whole_run or 0.0) if waiting else 0.0)


def duration(seconds: float | None) -> str:
    """`45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`; a dash for None or a number that is not finite."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    seconds = max(0.0, seconds)
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"
