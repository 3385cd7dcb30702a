"""What an epoch's steps say of themselves: loss terms and diagnostics, as means for the history."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ssmlbench.core.errors import ContractError


class StepLog:
    """Loss terms and diagnostics of an epoch's steps.

    function: "loss" or "step", which of them the method has written.
    """

    def __init__(self, function: str = "step") -> None:
        self._function = function
        self._values: dict[str, list[Tensor]] = {}

    def add(self, terms: Mapping[str, Tensor], diagnostics: Mapping[str, Tensor]) -> None:
        """Note one step's values. They stay on the device, as reading them would wait for it."""
        for name, term in terms.items():
            self._values.setdefault(f"loss_{name}", []).append(term.detach())
        for name, value in diagnostics.items():
            if not isinstance(value, Tensor) or value.dim():
                raise self._not_one_number(name, value)
            self._values.setdefault(name, []).append(value.detach())

    def first_not_finite(self) -> tuple[int, list[str]]:
        """The first step, from 1, with a term that is not finite, and the terms; (0, []) if none."""
        found: dict[int, list[str]] = {}
        for name, values in self._values.items():
            if name.startswith("loss_"):
                finite = torch.stack(values).isfinite().tolist()
                if not all(finite):
                    step = finite.index(False) + 1
                    found.setdefault(step, []).append(name.removeprefix("loss_"))
        return (min(found), found[min(found)]) if found else (0, [])

    def terms_in(self, step: int) -> int:
        """How many terms that many steps had."""
        return sum(n.startswith("loss_") and len(v) >= step for n, v in self._values.items())

    def means(self, steps: int) -> dict[str, float]:
        """Each value's sum over the steps, divided by their number."""
        return {name: float(torch.stack(v).sum()) / steps for name, v in self._values.items()}

    def _not_one_number(self, name: str, value: object) -> ContractError:
        """The error for a diagnostic that cannot be averaged over the steps."""
        shape = f"has shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
        return ContractError(
            f"self.diagnostics[{name!r}] {shape or f'is {value!r:.40}'}, expected a tensor with one "
            "number",
            self._function,
            name,
        )
