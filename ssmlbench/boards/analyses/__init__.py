"""Analyses of finished runs: why a method wins. One module each; they read results, never torch.

A module in this folder with a subclass of `Analysis` is an analysis: `analyses_by_name` finds it, and
`ssmlbench analyse NAME`, its options and the report follow from the class.
"""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module

from ssmlbench.boards.analyses.contract import Analysis


def analyses_by_name() -> dict[str, Analysis]:
    """An instance of every analysis, by its name."""
    by_name: dict[str, Analysis] = {}
    for module in pkgutil.iter_modules(__path__):
        members = vars(import_module(f"{__name__}.{module.name}")).values()
        for cls in members:
            own = inspect.isclass(cls) and cls.__module__.endswith(f".{module.name}")
            if own and issubclass(cls, Analysis) and not inspect.isabstract(cls):
                by_name[cls.name] = cls()
    return dict(sorted(by_name.items()))
