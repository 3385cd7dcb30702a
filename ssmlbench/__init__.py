"""ssmlbench: one honest benchmark for semi-supervised multi-label learning.

The public names are those of `ssmlbench.api`, loaded when they are first used: `import ssmlbench`
does not import torch.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    return getattr(import_module("ssmlbench.api"), name)
