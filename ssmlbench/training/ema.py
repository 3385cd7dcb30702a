"""The exponential moving average of a network, with a decay that warms up.

torch's AveragedModel is not used: it reads a counter back from the device and regroups every
tensor at each step, which on a small network costs more than the average itself.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class Ema:
    """The averaged copy of every entry of the state dict, normalisation statistics included."""

    def __init__(self, network: nn.Module, decay: float):
        self.decay = decay
        self.updates = 0
        self.network = copy.deepcopy(network).requires_grad_(False).eval()
        pairs = list(zip(_entries(self.network), _entries(network), strict=True))
        self._averaged = [a for a, b in pairs if b.is_floating_point()]
        self._followed = [b for _, b in pairs if b.is_floating_point()]
        self._counters = [(a, b) for a, b in pairs if not b.is_floating_point()]

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the present weights."""
        # A fixed decay of .9997 would keep a short run's average at its start.
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        torch._foreach_lerp_(self._averaged, self._followed, 1 - decay)
        for averaged, followed in self._counters:
            averaged.copy_(followed)
        self.updates += 1

    @torch.no_grad()
    def restart(self) -> None:
        """Set the average to the present weights (the papers do so after warm-up)."""
        self.updates = 0
        torch._foreach_copy_(self._averaged, self._followed)


def _entries(network: nn.Module) -> list[Tensor]:
    return [value.detach() for value in network.state_dict().values()]
