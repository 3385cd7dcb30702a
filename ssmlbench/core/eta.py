"""How fast epochs go by, and so how long is left. Wall time only; nothing here touches a number."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable

REMEMBERED = 5
"""Epochs the time is judged by: few, since warm-up epochs are cheaper than the others."""


class EpochTimer:
    """Measures how long the last epochs took; call `tick` at the end of each."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._last = clock()
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)

    def restart(self) -> None:
        """What went before (loading, encoding) is not an epoch's time."""
        self._last = self._clock()

    def tick(self) -> None:
        now = self._clock()
        self._seconds.append(now - self._last)
        self._last = now

    @property
    def seconds_per_epoch(self) -> float | None:
        return statistics.median(self._seconds) if self._seconds else None


def duration(seconds: float | None) -> str:
    """`45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`; a dash where nothing is known."""
    if seconds is None:
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
