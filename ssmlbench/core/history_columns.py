"""The columns of history.csv that trainer and judge write: a method may not log under their names."""

from __future__ import annotations

PROGRESS = ("epoch", "phase", "steps", "lr", "seconds", "samples_per_second", "peak_memory_mb")
"""About the run's progress, not about what was learned."""
JUDGED = ("pseudo_precision", "pseudo_recall", "pseudo_trusted", "val_map", "oracle_map")
LOSS = "loss_"
"""How the names of loss terms begin."""


def is_taken(name: str) -> bool:
    """Whether a column of that name is not a method's own."""
    return name in PROGRESS or name in JUDGED or name.startswith(LOSS)
