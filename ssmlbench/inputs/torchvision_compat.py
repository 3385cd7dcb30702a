"""Lets `import torchvision` succeed where its compiled operators do not load.

A torchvision built for CUDA beside a CPU torch fails while registering `nms`, which it never
compiled in, and then no transformers model can be imported. Declaring the two schemas it looks
for is enough, as nothing here calls them. Call this before the first import of either library.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declared: list[torch.library.Library] = []  # a library's schemas live as long as it does


def declare_missing_operators() -> bool:
    """Declare `nms` and `qnms` when, and only when, the compiled ones are not available."""
    if _declared or hasattr(torch.ops.torchvision, "nms") or _compiled_operators_load():
        return False
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(name + SCHEMA)
    _declared.append(library)
    return True


def _compiled_operators_load() -> bool:
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return True  # no torchvision: nothing to cure
    compiled = sorted(Path(spec.origin).parent.glob("_C*"))
    try:
        for file in compiled:
            torch.ops.load_library(str(file))
    except OSError:
        return False
    return bool(compiled)
