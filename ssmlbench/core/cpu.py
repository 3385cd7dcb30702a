"""The cores this process may use."""

from __future__ import annotations

import os


def core_count() -> int:
    """The cores this process may use, not the ones the machine has."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1
