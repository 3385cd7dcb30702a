"""Values of run options, from their declarations."""

from __future__ import annotations

from typing import Any

from ssmlbench.core.run_options import RunOption


def another_value(option: RunOption) -> Any:
    """A valid value of the field that is not its default."""
    if option.choices:
        return next(choice for choice in option.choices if choice != option.default)
    if option.regimes:
        return option.example / 2
    if option.kind is str:
        return "other"
    if option.kind is bool:
        return not option.default
    if option.kind in (int, float):
        return option.kind(3)
    return {"other": 1} if isinstance(option.default, dict) else ("other",)
