"""How far the gradients of positives and negatives are from balance (HML, Figure 3)."""

from __future__ import annotations

import numpy as np

from ssmlbench.boards.columns import Cost
from ssmlbench.core.errors import DamagedFile, UserError
from ssmlbench.runs.diagnostics import Diagnostics
from ssmlbench.runs.finished import Finished

GRADIENTS = Cost("gradients", "|Σ⁺(1 − p) − Σ⁻p| per row")
"""The imbalance of gradients as a column beside the metrics."""


def gradient_imbalance(run: Finished) -> float:
    """|Σ_pos (1 − p) − Σ_neg p| over the sampled training rows after the last epoch, per row.

    Positives are the observed ones; all other entries count as negative, as a method sees them that
    assumes unknown labels negative.
    """
    try:
        diagnostics = Diagnostics.read(run.folder)
    except DamagedFile as error:
        raise UserError(str(error)) from None
    if diagnostics is None or "score_sums" not in diagnostics:
        raise UserError(
            f"--gradients: {run.folder} has no sums of scores: it was made before they were stored, or its "
            "method has no scores of one view; delete that folder and give the same command again"
        )
    positives = float(diagnostics["scores"][-1, 0].sum(dtype=np.float64))
    sums = diagnostics["score_sums"][-1].astype(np.float64)
    # A label's positives and negatives: all rows, unless nobody knows some of its entries.
    rows = float(diagnostics["supervised"][-1, 4:].sum(axis=0).max())
    return float(abs((positives - sums[0]) - sums[1:].sum()) / max(rows, 1.0))
