"""The table of analyses: every module of this folder that has one."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module

from ssmlbench.boards import analyses
from ssmlbench.boards.analyses.contract import Analysis


def analyses_by_name() -> dict[str, Analysis]:
    """An instance of every analysis, by its name."""
    by_name: dict[str, Analysis] = {}
    for module in pkgutil.iter_modules(analyses.__path__):
        members = vars(import_module(f"{analyses.__name__}.{module.name}")).values()
        for cls in members:
            own = inspect.isclass(cls) and cls.__module__.endswith(f".{module.name}")
            if own and issubclass(cls, Analysis) and not inspect.isabstract(cls):
                by_name[cls.name] = cls()
    return dict(sorted(by_name.items()))
