"""The loss terms and diagnostics of an epoch's steps: their means, and the check that they are finite."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ssmlbench.core.errors import ContractError, Diverged
from ssmlbench.core.history_columns import LOSS, is_taken


class StepLog:
    """Loss terms and diagnostics of an epoch's steps.

    function: the one that the method defines, "loss" or "step".
    """

    def __init__(self, function: str = "step") -> None:
        self._function = function
        self._values: dict[str, list[Tensor]] = {}

    def add(self, terms: Mapping[str, Tensor], diagnostics: Mapping[str, Tensor]) -> None:
        """Add one step's values. They stay on the device: reading them would wait for it."""
        for name, term in terms.items():
            self._values.setdefault(f"{LOSS}{name}", []).append(term.detach())
        for name, value in diagnostics.items():
            if not isinstance(value, Tensor) or value.dim():
                raise self._not_one_number(name, value)
            if is_taken(name):
                raise ContractError(
                    f"self.diagnostics has {name!r}, a column of history.csv that is not the method's; "
                    "choose another name",
                    self._function,
                    name,
                )
            self._values.setdefault(name, []).append(value.detach())

    def means(self, steps: int) -> dict[str, float]:
        """Each value's sum over the steps, divided by their number."""
        return {name: float(torch.stack(v).sum()) / steps for name, v in self._values.items()}

    def check_finite(self, epoch: int, means: Mapping[str, float], weights: bool) -> None:
        """Raise Diverged unless the terms and the weights are finite.

        epoch: counted from 1. means: of the epoch. weights: whether all weights are finite.
        """
        bad = [n for n, mean in means.items() if n.startswith(LOSS) and not math.isfinite(mean)]
        if not bad and weights:
            return
        step, first = self._first_not_finite()
        if first and (step == 1 or len(first) == 1 or len(first) < self._terms_in(step)):
            # Later steps have weights that are not finite: their other terms are only a consequence.
            named = ", ".join(map(repr, first))
            raise Diverged(
                f"term {named} is not finite in epoch {epoch}, step {step}; does it divide by 0 or "
                "take the log or root of 0? Else try a smaller --lr",
                "loss",
                first[0],
            )
        raise Diverged(
            f"the weights are not finite in epoch {epoch}; try a smaller --lr (a term that is finite "
            "can have a gradient that is not: the root, norm or log of 0)",
            "loss",
        )

    def _first_not_finite(self) -> tuple[int, list[str]]:
        """The first step, from 1, with a term that is not finite, and the terms; (0, []) if none."""
        terms_of_step: dict[int, list[str]] = {}
        for name, values in self._values.items():
            if name.startswith(LOSS):
                finite = torch.stack(values).isfinite().tolist()
                if not all(finite):
                    step = finite.index(False) + 1
                    terms_of_step.setdefault(step, []).append(name.removeprefix(LOSS))
        return (min(terms_of_step), terms_of_step[min(terms_of_step)]) if terms_of_step else (0, [])

    def _terms_in(self, step: int) -> int:
        """The number of terms that had at least `step` values."""
        return sum(n.startswith(LOSS) and len(v) >= step for n, v in self._values.items())

    def _not_one_number(self, name: str, value: object) -> ContractError:
        """The error for a diagnostic that cannot be averaged over the steps."""
        shape = f"has shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
        return ContractError(
            f"self.diagnostics[{name!r}] {shape or f'is {value!r:.40}'}, expected a tensor with one "
            "number",
            self._function,
            name,
        )
