"""Images as histograms of gradients and colours: classical features, nothing is learnt."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ssmlbench.inputs.encoders.base import Encoder

ORIENTATIONS = 9
CELLS = 8
"""Cells along each side in which gradients are counted."""
COLOURS = 4
"""Levels of each channel in the colour histogram."""
LUMINANCE = (0.299, 0.587, 0.114)


class Hog(Encoder):
    """Histograms of oriented gradients (Dalal and Triggs, CVPR 2005) and of colours.

    It has no weights, and knows shapes and colours only: a pretrained network is far better.
    """

    name = "hog"
    kinds = {"image"}
    always_frozen = True
    threads = 1
    options = {"image_size": 128}
    features = CELLS * CELLS * ORIENTATIONS + 5 * COLOURS**3

    def forward(self, images: Tensor) -> Tensor:
        """B × 3 × S × S uint8 → B × features."""
        floats = images.float() / 255
        return torch.cat([_gradients(floats), _colours(floats)], dim=1)


def _gradients(images: Tensor) -> Tensor:
    """Gradient magnitude by orientation in each cell, normalised by the cells around it."""
    weights = torch.tensor(LUMINANCE, device=images.device)[:, None, None]
    grey = F.pad((images * weights).sum(1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    across = grey[:, 0, 1:-1, 2:] - grey[:, 0, 1:-1, :-2]
    down = grey[:, 0, 2:, 1:-1] - grey[:, 0, :-2, 1:-1]
    magnitude = torch.hypot(across, down)
    # Opposite directions are one orientation; each pixel is shared by the two nearest bins.
    angle = torch.atan2(down, across) / torch.pi % 1 * ORIENTATIONS
    lower = angle.floor()
    share = angle - lower
    first = F.one_hot(lower.long() % ORIENTATIONS, ORIENTATIONS) * (1 - share)[..., None]
    second = F.one_hot((lower.long() + 1) % ORIENTATIONS, ORIENTATIONS) * share[..., None]
    voted = ((first + second) * magnitude[..., None]).permute(0, 3, 1, 2)
    cells = F.adaptive_avg_pool2d(voted, CELLS)
    energy = F.avg_pool2d(cells.square().sum(1, keepdim=True), 3, 1, 1, count_include_pad=False)
    return (cells / (energy + 1e-6).sqrt()).flatten(1)


def _colours(images: Tensor) -> Tensor:
    """Square roots of colour frequencies: of the whole image, and of its four quarters."""
    level = (images * COLOURS).long().clamp(max=COLOURS - 1)
    bins = (level[:, 0] * COLOURS + level[:, 1]) * COLOURS + level[:, 2]
    counted = F.one_hot(bins, COLOURS**3).permute(0, 3, 1, 2).float()
    quarters = F.adaptive_avg_pool2d(counted, 2)
    whole = counted.mean(dim=(2, 3))
    return torch.cat([whole, quarters.flatten(1)], dim=1).sqrt()
