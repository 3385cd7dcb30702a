"""Which files hold labels, or tell of them: by their names, wherever a process watches for them."""

from __future__ import annotations

import os

TASKS = "tasks"
"""The folder of the cache with the prepared data sets."""
CARD = "card.json"
"""The description of a prepared data set; it says how frequent each label is."""
LABELS = "labels"
"""The folder, in that of a prepared data set, that holds the true labels."""
HOLDS_LABELS = ("scores.safetensors", "diagnostics.safetensors")
"""Of finished runs: they hold test labels, and how frequent hidden ones are."""
HOLDS_RESULTS = ("result.json", "computed.json", "judgements.safetensors")
"""Of any run: what test labels, or hidden ones, are like can be told from them."""
INDEX = "index"
"""The folder of the cache with what result.json files held."""


def in_tasks(path: str) -> bool:
    """Whether a path below the folder of prepared data sets, with its first separator, is sealed."""
    return f"{os.sep}{LABELS}" in path or path.endswith(f"{os.sep}{CARD}")
