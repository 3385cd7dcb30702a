"""ssmlbench: one honest benchmark for semi-supervised multi-label learning.

The public names are those of `ssmlbench.api`. They are loaded when they are first used: importing
ssmlbench does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# isort: off
if TYPE_CHECKING:  # what a notebook uses; a plugin file imports from ssmlbench.api
    from ssmlbench.api import (
        Boards as Boards,
        RunFailed as RunFailed,
        RunResult as RunResult,
        RunResults as RunResults,
        UserError as UserError,
        compare as compare,
        datasets as datasets,
        methods as methods,
        run as run,
    )
# isort: on

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    api = import_module("ssmlbench.api")
    if name not in api.__all__:
        raise AttributeError(f"module 'ssmlbench' has no attribute {name!r}")
    return getattr(api, name)


def __dir__() -> list[str]:
    return [*globals(), *import_module("ssmlbench.api").__all__]
