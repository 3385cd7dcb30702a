"""The training rows of a data set in two parts: docs/recipe.md was measured on them. No test row is read.

docs/recipe.md has the command.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ssmlbench.api import Row
from ssmlbench.data.user_data import data_class, looks_like_path
from ssmlbench.plugins.loader import Plugins

OF = os.environ.get("HELD_OUT_OF", "multidigits")
BASE = data_class(Path(OF)) if looks_like_path(OF) else Plugins([]).datasets[OF]
SEED = int(os.environ.get("HELD_OUT_SEED", "0"))
TRAIN_SHARE = 0.7


class HeldOut(BASE):  # type: ignore[misc, valid-type]
    """70 % of the training rows as train, the others as test."""

    name = f"held-out-{BASE.name}-{SEED}"

    def rows(self, split: str) -> Iterator[Row]:
        """Yield the rows of one part, in the order of the seed."""
        rows = list(super().rows("train"))
        order = np.random.RandomState(1000 + SEED).permutation(len(rows))
        cut = int(TRAIN_SHARE * len(rows))
        for number in order[:cut] if split == "train" else order[cut:]:
            yield rows[number]
