"""Inputs of a split and the views taken of them: plain (as is), weak, strong.

Views are drawn for a whole batch at once with parameters of their own for each row; torchvision's
transforms draw one set of parameters a call, which on small in-memory images is a Python loop a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

View = Callable[[Tensor, Generator], Tensor]


class Inputs:
    """One split in memory: N × C × H × W uint8 images, or N × D float vectors."""

    def __init__(self, values: Tensor, views: dict[str, View]):
        self.values = values
        self.views = views

    def __len__(self) -> int:
        return len(self.values)

    def view(self, rows: npt.NDArray[np.int64], view: str, generator: Generator) -> Tensor:
        """The rows as a network takes them, seen through one view."""
        batch = self.values[torch.from_numpy(rows)]
        if batch.dtype == torch.uint8:
            batch = batch.float() / 255
        return self.views[view](batch, generator)


def image_views(flips: bool) -> dict[str, View]:
    """Views of B × C × H × W images in 0..1. Mirroring only where it keeps the labels."""
    mirror: View = _mirror if flips else _plain
    views: dict[str, View] = {
        "plain": _plain,
        "weak": lambda images, generator: _shift(mirror(images, generator), generator),
        "strong": lambda images, generator: _strong(mirror(images, generator), generator),
    }
    return views | {f"{name}-patches": _patched(view) for name, view in views.items()}


def vector_views(noise: float = 0.1, dropout: float = 0.1) -> dict[str, View]:
    """Views of B × D vectors: weak is as is; strong adds Gaussian noise and drops features."""

    def strong(vectors: Tensor, generator: Generator) -> Tensor:
        noisy = vectors + noise * torch.randn(vectors.shape, generator=generator)
        return noisy * (torch.rand(vectors.shape, generator=generator) >= dropout)

    return {"plain": _plain, "weak": _plain, "strong": strong}


def _patched(view: View) -> View:
    """The view, cut in 2 × 2 patches that are each resized to the whole: B rows become 4B.

    Row i's patches stand at 4i … 4i + 3.
    """

    def patches(images: Tensor, generator: Generator) -> Tensor:
        seen = view(images, generator)
        height, width = seen.shape[2:]
        cut = [
            half
            for band in (seen[:, :, : height // 2], seen[:, :, height - height // 2 :])
            for half in (band[..., : width // 2], band[..., width - width // 2 :])
        ]
        together = torch.stack(cut, dim=1).flatten(0, 1)
        return F.interpolate(together, size=(height, width), mode="bilinear", align_corners=False)

    return patches


def _plain(inputs: Tensor, generator: Generator) -> Tensor:
    return inputs


def _mirror(images: Tensor, generator: Generator) -> Tensor:
    chosen = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(chosen[:, None, None, None], images.flip(3), images)


def _shift(images: Tensor, generator: Generator) -> Tensor:
    """Each image by -1, 0 or 1 pixel along each axis, filled with black."""
    batch, channels, height, width = images.shape
    padded = F.pad(images, (1, 1, 1, 1))
    top, left = torch.randint(0, 3, (2, batch, 1), generator=generator)
    rows = (top + torch.arange(height))[:, None, :, None]
    columns = (left + torch.arange(width))[:, None, None, :]
    image = torch.arange(batch)[:, None, None, None]
    return padded[image, torch.arange(channels)[None, :, None, None], rows, columns]


def _strong(images: Tensor, generator: Generator) -> Tensor:
    """Warp, re-light, add noise and cut out."""
    lit = _relight(_warp(images, generator), generator)
    return _cutout(lit, generator).clamp_(0.0, 1.0)


def _uniform(low: float, high: float, shape: tuple[int, ...], generator: Generator) -> Tensor:
    return torch.rand(shape, generator=generator) * (high - low) + low


def _warp(images: Tensor, generator: Generator) -> Tensor:
    """Shift, scale, rotation and shear."""
    batch, _, height, width = images.shape
    reach = 0.15 * min(height, width)
    # A rotation moves the ends of a wide canvas most: small, so that what is there stays there.
    angle = _uniform(-math.radians(5), math.radians(5), (batch,), generator)
    shear = _uniform(-0.3, 0.3, (batch,), generator)
    scale_x, scale_y = _uniform(0.85, 1.15, (2, batch), generator)
    shift_x, shift_y = _uniform(-reach, reach, (2, batch), generator)
    cos, sin, aspect = angle.cos(), angle.sin(), height / width
    # The map from output to input pixels, on the -1..1 axes of affine_grid.
    across = (scale_x * cos, scale_y * (shear - sin) * aspect, shift_x * 2 / width)
    down = (scale_x * sin / aspect, scale_y * cos, shift_y * 2 / height)
    theta = torch.stack((torch.stack(across, dim=1), torch.stack(down, dim=1)), dim=1)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def _relight(images: Tensor, generator: Generator) -> Tensor:
    """Contrast, brightness and Gaussian noise."""
    shape = (len(images), 1, 1, 1)
    contrast = _uniform(0.6, 1.4, shape, generator)
    brightness = _uniform(-0.1, 0.1, shape, generator)
    level = _uniform(0.0, 0.1, shape, generator)
    return images * contrast + brightness + level * torch.randn(images.shape, generator=generator)


def _cutout(images: Tensor, generator: Generator) -> Tensor:
    """Blacken one square of 0.4 of the shorter side, anywhere."""
    batch, _, height, width = images.shape
    size = round(0.4 * min(height, width))
    top = torch.randint(1 - size, height, (batch, 1), generator=generator)
    left = torch.randint(1 - size, width, (batch, 1), generator=generator)
    rows, columns = torch.arange(height) - top, torch.arange(width) - left
    inside = ((rows >= 0) & (rows < size))[:, :, None] & ((columns >= 0) & (columns < size))[:, None]
    return images.masked_fill(inside[:, None], 0.0)
