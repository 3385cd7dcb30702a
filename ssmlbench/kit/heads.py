"""What sits on an encoder: the papers' projection, their two heads, and the network that joins them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PROJECTION_WIDTHS = (512, 256)
"""d → 512 → GELU → 256, no final activation (BBAM's image model)."""


class CosineHead(nn.Module):
    """Cosines between the feature and one vector a label: no bias, no scale. Out: B × K in [-1, 1]."""

    def __init__(self, width: int, labels: int):
        super().__init__()
        bound = width**-0.5
        self.weight = nn.Parameter(torch.empty(labels, width).uniform_(-bound, bound))

    def forward(self, features: Tensor) -> Tensor:
        """Features, B × width, to cosines, B × K."""
        return F.linear(F.normalize(features, dim=1), F.normalize(self.weight, dim=1))


def build_head(kind: str, width: int, labels: int) -> nn.Module:
    """The head of a name that `Method.head` may have: B × width → B × labels."""
    return CosineHead(width, labels) if kind == "cosine" else nn.Linear(width, labels)


def build_projection(kind: str, width: int) -> tuple[nn.Module, int]:
    """The projection and the width of its output."""
    if kind == "none":
        return nn.Identity(), width
    hidden, out = PROJECTION_WIDTHS
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, out)), out


class Network(nn.Module):
    """Inputs → encoder → projection → features h → head → logits.

    A head returns the B × K logits, or a dictionary with "logits" and whatever else its method
    wants to see again in `batch.outputs(view)`. It always computes in single precision: rounded to
    bfloat16, the logits of a large pool take some hundred values, and every rank of them is a tie.
    """

    def __init__(self, encoder: nn.Module, projection: nn.Module, head: nn.Module):
        super().__init__()
        self.encoder = encoder
        self.projection = projection
        self.head = head

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """Features and the head's outputs by name, in single precision."""
        features = self.projection(self.encoder(inputs)).float()
        with single_precision(features.device):
            outputs = self.head(features)
        if isinstance(outputs, Tensor):
            outputs = {"logits": outputs}
        return {"features": features, **{name: value.float() for name, value in outputs.items()}}


def single_precision(device: torch.device) -> AbstractContextManager[Any]:
    """A block in which autocast is off, whatever is around it."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()
