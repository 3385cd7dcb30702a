"""Encoders on their device, in the memory layout that is fastest there."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

CHANNELS_LAST = ("cuda",)
"""Kinds of devices whose convolutions are faster with channels last; elsewhere an encoder decides."""

AnyModule = TypeVar("AnyModule", bound=nn.Module)


def placed(module: AnyModule, device: torch.device) -> AnyModule:
    """Move a module to a device; one with convolutions to the layout that is fastest there."""
    module.to(device)
    if device.type in CHANNELS_LAST and any(isinstance(m, nn.Conv2d) for m in module.modules()):
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module
