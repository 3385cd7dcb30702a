"""ROLE: regularised online label estimation."""

from __future__ import annotations

from ssmlbench.api import EstimatedLabelsMethod


class Role(EstimatedLabelsMethod):
    """A label matrix and the network are learnt together, each the other's target."""

    name = "role"
