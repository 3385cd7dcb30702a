"""The engines, which make the runs of a grid: every module of this folder with an `Engine` adds one."""

from __future__ import annotations

import importlib
import pkgutil

from ssmlbench.core.registry import Registry
from ssmlbench.grid.engines.base import Engine


def engines() -> Registry[Engine]:
    """The engines by name, found in this folder: there is no list to edit."""
    registry: Registry[Engine] = Registry("engine")
    for module in pkgutil.iter_modules(__path__):
        names = vars(importlib.import_module(f"{__name__}.{module.name}")).values()
        for cls in names:
            if isinstance(cls, type) and issubclass(cls, Engine) and _defined_in(cls, module.name):
                registry.add(cls)
    return registry


def _defined_in(cls: type[Engine], module: str) -> bool:
    return cls.__module__ == f"{__name__}.{module}" and "name" in vars(cls)
