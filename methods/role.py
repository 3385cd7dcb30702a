"""ROLE: regularised online label estimation."""

from __future__ import annotations

from ssmlbench.api import EstimatedLabelsMethod


class Role(EstimatedLabelsMethod):
    """A matrix of label estimates and the network are trained together, each as the other's target."""

    name = "role"
