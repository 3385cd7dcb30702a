"""Refuses specs that no run can have."""

from __future__ import annotations

from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import OPTIONS, REGIME_NUMBERS, RunSpec


def check_spec(spec: RunSpec) -> None:
    """Raise a UserError for values that no run can have."""
    for option in OPTIONS.values():
        option.check(getattr(spec, option.name))
    number = REGIME_NUMBERS.get(spec.regime)
    if number and spec.regime_number is None:
        raise UserError(f"{number.flag} is missing: it {number.expected}")
    if spec.warmup_epochs > spec.epochs:
        raise UserError(
            f"--warmup-epochs {spec.warmup_epochs}: must lie between 0 and --epochs {spec.epochs}"
        )
    if spec.counts_steps and spec.epoch_count == "labelled":
        raise UserError(
            "--epoch labelled counts rows, and --epoch-steps and --recipe features count steps; type "
            "--recipe paper without --epoch-steps, or leave --epoch out"
        )
    if spec.folds is not None and spec.regime != "given":
        raise UserError(f"--folds is for --regime given, not for --regime {spec.regime}")
    if spec.folds == 1:
        raise UserError("--folds 1: must be at least 2; 0 trains on all labelled rows")
    if spec.judged_on == "held-out" and spec.selection == "oracle":
        raise UserError("tune never looks at the test set: --selection must be last or val")
