"""A training process that computes in float64, whatever its method. Needs FLOAT64_EXCEPT."""

from __future__ import annotations

from typing import Any

from ssmlbench.runs import sealed_run


def training_process(*arguments: Any) -> None:
    from tests.faults import several_plugins  # noqa: F401

    sealed_run.training_process(*arguments)
