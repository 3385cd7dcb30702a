"""The cores this process may use."""

from __future__ import annotations

import os

from ssmlbench.core.whole_numbers import whole_number


def cores_of_job() -> int:
    """The cores that Slurm gave this job, or all that this process may use."""
    given = whole_number(os.environ.get("SLURM_CPUS_PER_TASK", ""))
    return core_count() if given is None else min(core_count(), max(1, given))


def core_count() -> int:
    """The cores this process may use, not the ones the machine has."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1
