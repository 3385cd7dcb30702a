"""Binary cross-entropy on the labelled rows.

The floor of every board, and its ceiling under `--regime full`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ssmlbench.api import Batch, Method, bce


class Bce(Method):
    """Binary cross-entropy on known labels only; with `--regime full` it is the oracle.

    An unknown entry of a labelled row costs nothing, and the mean is over all entries.
    """

    name = "bce"
    paper = "the standard baseline; equals CAP's warm-up with loss=bce"
    regimes = {"semi", "single-positive-negatives", "partial", "full"}
    unlabelled_views = ()  # never looks at an unlabelled row

    def loss(self, labelled: Batch, unlabelled: Batch | None) -> dict[str, Tensor]:
        entries = bce(labelled.logits("strong"), labelled.observed)
        return {"labelled": torch.where(labelled.observed >= 0, entries, 0.0).mean()}
