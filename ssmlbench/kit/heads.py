"""The modules on top of an encoder: projections, the papers' two heads, and the network that joins them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ssmlbench.inputs.views.vectors import kept_features

PROJECTION_WIDTHS = (512, 256)
"""d → 512 → GELU → 256, no final activation (BBAM's image model)."""
RECIPE_WIDTHS = (256, 128)
"""The same shape beside a linear path: d → 256 → GELU → 128 (docs/recipe.md)."""


class CosineHead(nn.Module):
    """Cosines between the features and one vector per label: no bias, no scale. Out: B × K in [-1, 1]."""

    def __init__(self, width: int, labels: int):
        super().__init__()
        bound = width**-0.5
        self.weight = nn.Parameter(torch.empty(labels, width).uniform_(-bound, bound))

    def forward(self, features: Tensor) -> Tensor:
        """Features, B × width, to cosines, B × K."""
        return F.linear(F.normalize(features, dim=1), F.normalize(self.weight, dim=1))


def build_head(kind: str, width: int, labels: int) -> nn.Module:
    """The head that `Method.head` names: B × width → B × labels."""
    return CosineHead(width, labels) if kind == "cosine" else nn.Linear(width, labels)


def start_at_zero(head: nn.Module) -> None:
    """Set a linear head to zero. Other heads keep their random start: a cosine of zero is undefined."""
    if isinstance(head, nn.Linear):
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)


class Dropout(nn.Dropout):
    """Dropout of B × D features, faster than torch's on a CPU."""

    def forward(self, features: Tensor) -> Tensor:
        """In train mode, set features to 0 with probability p and scale the others by 1 / (1 - p)."""
        if not self.training or self.p == 0:
            return features
        if features.device.type != "cpu":
            return super().forward(features)
        kept = kept_features(features.shape[0], features.shape[1], self.p)
        return features * kept.to(features.dtype).div_(1 - self.p)


def build_projection(kind: str, width: int, dropout: float = 0.0) -> tuple[nn.Module, int]:
    """The projection of a kind, and the width of its output. dropout: of its hidden units."""
    if kind == "none":
        return nn.Identity(), width
    if kind == "mlp":
        return _mlp(width, PROJECTION_WIDTHS, dropout), PROJECTION_WIDTHS[-1]
    projection = WithLinearPath(width, RECIPE_WIDTHS, dropout, added=kind == "residual")
    return projection, projection.width


def _mlp(width: int, widths: tuple[int, int], dropout: float) -> nn.Sequential:
    hidden, out = widths
    units = [nn.GELU(), Dropout(dropout)] if dropout else [nn.GELU()]
    return nn.Sequential(nn.Linear(width, hidden), *units, nn.Linear(hidden, out))


class WithLinearPath(nn.Module):
    """An MLP and a linear path side by side, so that a head can always be a linear classifier.

    skip: the head reads [x ; MLP(x)]. residual (`added`): it reads MLP(x) + A x. The second is for
    cosine heads: of two concatenated parts, the longer one would decide the angle.
    """

    def __init__(self, width: int, widths: tuple[int, int], dropout: float, added: bool):
        super().__init__()
        self.mlp = _mlp(width, widths, dropout)
        self.linear = nn.Linear(width, widths[-1], bias=False) if added else None
        self.width = widths[-1] if added else width + widths[-1]

    def forward(self, features: Tensor) -> Tensor:
        """B × D → B × width."""
        nonlinear: Tensor = self.mlp(features)
        if self.linear is None:
            return torch.cat([features, nonlinear], dim=1)
        linear: Tensor = self.linear(features)
        return nonlinear + linear


class Network(nn.Module):
    """Inputs → encoder → dropout → projection → features h → head → logits.

    A head returns the B × K logits, or a dictionary with "logits" and other outputs that its method
    reads from `batch.outputs(view)`. It always computes in single precision: rounded to bfloat16, the
    logits of a large pool take only some hundred values, so that most ranks would be ties.
    """

    def __init__(
        self,
        encoder: nn.Module,
        projection: nn.Module,
        head: nn.Module,
        dropout: nn.Module | None = None,
    ):
        super().__init__()
        self.encoder = encoder
        self.dropout = nn.Identity() if dropout is None else dropout
        self.projection = projection
        self.head = head

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """Features and the head's outputs by name, in single precision."""
        features = self.projection(self.dropout(self.encoder(inputs))).float()
        with single_precision(features.device):
            outputs = self.head(features)
        if isinstance(outputs, Tensor):
            outputs = {"logits": outputs}
        return {"features": features, **{name: value.float() for name, value in outputs.items()}}


def single_precision(device: torch.device) -> AbstractContextManager[Any]:
    """A context that turns autocast off."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()
