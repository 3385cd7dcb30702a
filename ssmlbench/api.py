"""What a plugin file or a notebook imports: the only names of ssmlbench that are promised to stay.

Each name is loaded from its room when it is first asked for, so that nothing imports torch before
something needs it: a data set's file never does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass

HOMES = {
    "ssmlbench.core.errors": ("UserError",),
    "ssmlbench.core.hyperparameters": ("between", "choice", "option"),
    "ssmlbench.data": (
        "SPLITS",
        "BadRow",
        "DatasetAdapter",
        "Hub",
        "Published",
        "Row",
        "label_string",
        "numbered_lines",
    ),
    "ssmlbench.data.records": ("read_records",),
    "ssmlbench.inputs.encoders": ("Encoder", "EncoderOptions"),
    "ssmlbench.kit.families.entropy": ("EntropyMethod",),
    "ssmlbench.kit.families.partial": (
        "KAPPA",
        "EstimatedLabelsMethod",
        "LargeLossMethod",
        "PartialMethod",
        "PenalisedMethod",
        "coded_loss",
        "expected_positives",
        "large_losses",
        "positives_penalty",
        "soft_loss",
    ),
    "ssmlbench.kit.gradient_step": ("GradientStep",),
    "ssmlbench.kit.heads": ("Network",),
    "ssmlbench.kit.losses": ("angles", "asymmetric_loss", "bce"),
    "ssmlbench.kit.method": ("Method",),
    "ssmlbench.kit.pools": ("Batch", "Outputs", "Pool", "Pools", "RowOutputs"),
    "ssmlbench.kit.pseudo_labels": (
        "class_aware_labels",
        "confident_targets",
        "consistency",
        "descending",
        "moved_thresholds",
        "usage",
    ),
}
"""Where each public name lives."""

_HOME_OF = {name: module for module, names in HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"ssmlbench.api has no {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
