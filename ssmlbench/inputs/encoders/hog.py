"""Images as histograms of gradients and colours: classical features, without learning."""

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

    It has no weights and sees only shapes and colours: a pretrained network is far better.
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
    first = (lower.long() % ORIENTATIONS)[..., None]
    second = (first + 1) % ORIENTATIONS
    voted = torch.zeros(*magnitude.shape, ORIENTATIONS, device=images.device)
    voted.scatter_(3, first, ((1 - share) * magnitude)[..., None])
    voted.scatter_(3, second, (share * magnitude)[..., None])
    cells = F.adaptive_avg_pool2d(voted.permute(0, 3, 1, 2), CELLS)
    energy = F.avg_pool2d(cells.square().sum(1, keepdim=True), 3, 1, 1, count_include_pad=False)
    return (cells / (energy + 1e-6).sqrt()).flatten(1)


def _colours(images: Tensor) -> Tensor:
    """Square roots of colour frequencies: of the whole image, and of its four quarters."""
    level = (images * COLOURS).long().clamp(max=COLOURS - 1)
    bins = (level[:, 0] * COLOURS + level[:, 1]) * COLOURS + level[:, 2]
    height, width = bins.shape[1:]
    halves = ((0, (height + 1) // 2), (height // 2, height))
    sides = ((0, (width + 1) // 2), (width // 2, width))
    quarters = [bins[:, a:b, c:d] for a, b in halves for c, d in sides]
    frequencies = torch.stack([_frequencies(quarter) for quarter in quarters], dim=2)
    return torch.cat([_frequencies(bins), frequencies.flatten(1)], dim=1).sqrt()


def _frequencies(bins: Tensor) -> Tensor:
    """B × H × W numbers of colours → B × colours: the share of the pixels of each."""
    each = bins.flatten(1)
    first = torch.arange(len(each), device=bins.device)[:, None] * COLOURS**3
    counts = torch.bincount((each + first).flatten(), minlength=len(each) * COLOURS**3)
    return counts.view(len(each), -1).float() / each.shape[1]
