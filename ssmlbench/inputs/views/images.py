"""Views of images: small ones in a batch, photographs through RandAugment, and patches of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from ssmlbench.inputs.views.base import DrawnView, View, identity

Apply = Callable[[Tensor, Any], Tensor]
"""(rows, their parameters) → the view of the rows."""

PATCHES = 4
"""The number of patches of an image in its "-patches" views."""


def image_views(flips: bool) -> dict[str, View]:
    """Views of small B × C × H × W images, as floats in 0..1; mirrored if `flips` keeps labels."""
    mirror: View = MIRROR if flips else identity
    views: dict[str, View] = {
        "plain": lambda images, generator: _floats(images),
        "weak": lambda images, generator: _shift(mirror(_floats(images), generator), generator),
        "strong": lambda images, generator: _strong(mirror(_floats(images), generator), generator),
    }
    return views | {f"{name}-patches": _patched(view) for name, view in views.items()}


def natural_views(flips: bool) -> dict[str, View]:
    """Views of photographs, B × 3 × S × S uint8 in and out.

    Weak mirrors; strong mirrors, applies RandAugment and cuts out a square.
    """
    from ssmlbench.inputs.views.batched import augment_batch
    from ssmlbench.inputs.views.randaugment import Augmentation, augment_rows

    weak: View = MIRROR if flips else identity

    def draw(rows: int, generator: Generator) -> tuple[Tensor | None, Augmentation]:
        mirrored = MIRROR.draw(rows, generator) if flips else None
        return mirrored, Augmentation.draw(rows, generator)

    def strong_by(augment: Callable[[Tensor, Augmentation], Tensor]) -> Apply:
        return lambda images, drawn: augment(_mirrored(images, drawn[0]), drawn[1])

    strong = DrawnView(draw, strong_by(augment_rows), strong_by(augment_batch))
    views: dict[str, View] = {"plain": identity, "weak": weak, "strong": strong}
    return views | {f"{name}-patches": _patched(view) for name, view in views.items()}


def _patched(view: View) -> View:
    """Cut the view in 2 × 2 patches and resize each to the whole image: B rows become 4B.

    The patches of row i are rows 4i … 4i + 3.
    """
    if not isinstance(view, DrawnView):
        return lambda images, generator: _patches(view(images, generator))
    return DrawnView(
        view.draw,
        lambda images, drawn: _patches(view.apply(images, drawn)),
        lambda images, drawn: _patches(view.on_device(images, drawn)),
    )


def _patches(seen: Tensor) -> Tensor:
    height, width = seen.shape[2:]
    cut = [
        half
        for band in (seen[:, :, : height // 2], seen[:, :, height - height // 2 :])
        for half in (band[..., : width // 2], band[..., width - width // 2 :])
    ]
    together = torch.stack(cut, dim=1).flatten(0, 1)
    size = (height, width)
    large = F.interpolate(together.float(), size=size, mode="bilinear", align_corners=False)
    return large.round_().to(seen.dtype) if seen.dtype == torch.uint8 else large


def _floats(images: Tensor) -> Tensor:
    return images.float() / 255 if images.dtype == torch.uint8 else images


def _mirrored(images: Tensor, chosen: Tensor | None) -> Tensor:
    """The chosen rows mirrored; None: none is."""
    if chosen is None:
        return images
    if images.device.type != "cpu":  # without reading back how many are chosen
        there = chosen.to(images.device, non_blocking=True)[:, None, None, None]
        return torch.where(there, images.flip(3), images)
    seen = images.clone()
    # Row by row: all at once, photographs are copied twice more.
    for row in chosen.nonzero().flatten().tolist():
        seen[row] = images[row].flip(2)
    return seen


MIRROR = DrawnView(lambda rows, generator: torch.rand(rows, generator=generator) < 0.5, _mirrored)
"""Each row or its mirror image."""


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
    """Shift, re-light, add noise and cut out."""
    lit = _relight(_shift(images, generator), generator)
    return _cutout(lit, generator).clamp_(0.0, 1.0)


def _uniform(low: float, high: float, shape: tuple[int, ...], generator: Generator) -> Tensor:
    return torch.rand(shape, generator=generator) * (high - low) + low


def _relight(images: Tensor, generator: Generator) -> Tensor:
    """Contrast, brightness and Gaussian noise."""
    shape = (len(images), 1, 1, 1)
    contrast = _uniform(0.6, 1.4, shape, generator)
    brightness = _uniform(-0.1, 0.1, shape, generator)
    noise = _uniform(0.0, 0.1, shape, generator)
    return images * contrast + brightness + noise * torch.randn(images.shape, generator=generator)


def _cutout(images: Tensor, generator: Generator) -> Tensor:
    """Blacken one square of 0.4 of the shorter side, anywhere."""
    batch, _, height, width = images.shape
    size = round(0.4 * min(height, width))
    top = torch.randint(1 - size, height, (batch, 1), generator=generator)
    left = torch.randint(1 - size, width, (batch, 1), generator=generator)
    rows, columns = torch.arange(height) - top, torch.arange(width) - left
    inside = ((rows >= 0) & (rows < size))[:, :, None] & ((columns >= 0) & (columns < size))[
        :, None
    ]
    return images.masked_fill(inside[:, None], 0.0)
