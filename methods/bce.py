"""Binary cross-entropy on the labelled rows.

The floor of every board, and its ceiling under `--regime full`.
"""

from __future__ import annotations

from torch import Tensor

from ssmlbench.api import Batch, Method, bce


class Bce(Method):
    """Labelled rows only; with every row labelled (`--regime full`) it is the oracle."""

    name = "bce"
    paper = "the standard baseline; equals CAP's warm-up with loss=bce"
    regimes = {"semi", "full"}
    unlabelled_views = ()  # never looks at an unlabelled row

    def loss(self, labelled: Batch, unlabelled: Batch | None) -> dict[str, Tensor]:
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}
