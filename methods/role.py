"""ROLE: regularised online label estimation."""

from __future__ import annotations

from ssmlbench.partial import EstimatedLabelsMethod


class Role(EstimatedLabelsMethod):
    """A label matrix and the network are learnt together, each the other's target."""

    name = "role"
    paper = "Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021"
    differences = (
        "known negatives have nl(1 - p) and nl(1 - E), as observed positives have nl(p) and nl(E); "
        "the paper's regime has none",
        "U has Adam without momentum, row by row (β₁ = 0): equal total moves at the cost of the "
        "batch's rows. Released: one Adam over the whole matrix at every step",
        "κ is the mean over labelled rows in semi; the paper knows it beforehand",
    )
