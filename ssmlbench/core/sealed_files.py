"""The names of files that hold labels or reveal them, for the code that keeps plugins from reading them."""

from __future__ import annotations

import os

TASKS = "tasks"
"""The folder of the cache with the prepared data sets."""
CARD = "card.json"
"""The description of a prepared data set; it has the frequency of each label."""
LABELS = "labels"
"""The folder, in that of a prepared data set, that holds the true labels."""
HOLDS_LABELS = ("scores.safetensors", "diagnostics.safetensors", "features.safetensors")
"""Files of finished runs with test labels, and with hidden ones or their frequencies."""
HOLDS_RESULTS = ("result.json", "computed.json", "judgements.safetensors")
"""Files of any run that reveal something about test labels or hidden ones."""
RUN_FILES = (
    *HOLDS_LABELS,
    *HOLDS_RESULTS,
    "history.csv",
    "model.safetensors",
    "model.json",
    "error.json",
)
"""Files of runs, which are sealed in any folder that has the file of a spec too."""
SPEC = "spec.json"
"""The file by which the folder of a run is known."""
LOCK = ".lock"
"""The file in a run's folder that is held while the run is made."""
SEALED = "labels are sealed"
PROTECTED = "no plugin may change it"
"""Why a plugin is refused a file."""
INDEX = "index"
"""The folder of the cache with the contents of result.json files."""


def in_tasks(path: str) -> bool:
    """Whether a path below the folder of prepared data sets, with its first separator, is sealed."""
    return f"{os.sep}{LABELS}" in path or path.endswith(f"{os.sep}{CARD}")
