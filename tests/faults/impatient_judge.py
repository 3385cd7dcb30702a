"""A judge that waits one second, not ten, for a training process that has closed its pipe."""

from __future__ import annotations

from typing import Any

from ssmlbench.runs import sealed_run, training_process


def judge_process(*arguments: Any) -> None:
    training_process.GRACE_SECONDS = 1.0
    sealed_run.judge_process(*arguments)
