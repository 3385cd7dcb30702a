"""What an epoch's steps say of themselves: loss terms and diagnostics, as means for the history."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class StepLog:
    """Loss terms and diagnostics of an epoch's steps."""

    def __init__(self) -> None:
        self._values: dict[str, list[Tensor]] = {}

    def add(self, terms: Mapping[str, Tensor], diagnostics: Mapping[str, Tensor]) -> None:
        """Note one step's values. They stay on the device, as reading them would wait for it."""
        for name, term in terms.items():
            self._values.setdefault(f"loss_{name}", []).append(term.detach())
        for name, value in diagnostics.items():
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
