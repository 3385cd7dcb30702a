"""RandAugment and cutout for photographs, as in the papers' image code.

The operations are torchvision's functions; every parameter is drawn from the generator passed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from ssmlbench.inputs.torchvision_compat import declare_missing_operators

OPERATIONS_A_ROW = 2
CHANCE = 0.5  # that a drawn operation is applied
LEVELS = 9  # a magnitude is drawn from 1..9 of 9
GREY = 128
CUTOUT_SIDE = 0.5  # of the image's side; what lies outside the image is clipped

Operation = Callable[[Any, Tensor, float, float], Tensor]
"""(torchvision's functions, a 3 × S × S image, magnitude in 0..1, sign) → the image."""


def randaugment(images: Tensor, generator: Generator) -> Tensor:
    """Apply two of the fifteen operations to each row of B × 3 × S × S uint8, then cutout."""
    functions = _functions()
    rows = len(images)
    chosen = torch.randint(0, len(OPERATIONS), (rows, OPERATIONS_A_ROW), generator=generator)
    levels = torch.randint(1, LEVELS + 1, chosen.shape, generator=generator) / LEVELS
    applied = torch.rand(chosen.shape, generator=generator) < CHANCE
    signs = torch.randint(0, 2, chosen.shape, generator=generator) * 2 - 1
    centres = torch.rand((rows, OPERATIONS_A_ROW + 1, 2), generator=generator)
    colours = torch.randint(0, 256, (rows, 3, 1, 1), generator=generator).to(torch.uint8)
    grey = torch.full((3, 1, 1), GREY, dtype=torch.uint8)
    done = []
    for i, image in enumerate(images):
        for j in range(OPERATIONS_A_ROW):
            if not applied[i, j]:
                continue
            operation, level = OPERATIONS[int(chosen[i, j])], float(levels[i, j])
            if operation is None:  # cutout, of up to 20 pixels of the 224 of the papers
                image = cut_out(image, centres[i, j], level * 20 / 224, grey)
            else:
                image = operation(functions, image, level, float(signs[i, j]))
        done.append(cut_out(image, centres[i, -1], CUTOUT_SIDE, colours[i]))
    return torch.stack(done)


def cut_out(image: Tensor, centre: Tensor, side: float, colour: Tensor) -> Tensor:
    """Colour one square around the centre (y, x in 0..1), its side a share of the image's."""
    height, width = image.shape[1:]
    y, x = float(centre[0]) * height, float(centre[1]) * width
    reach = side * min(height, width) / 2
    top, bottom = max(round(y - reach), 0), min(round(y + reach), height)
    left, right = max(round(x - reach), 0), min(round(x + reach), width)
    image = image.clone()
    image[:, top:bottom, left:right] = colour
    return image


def _functions() -> Any:
    declare_missing_operators()
    from torchvision.transforms.v2 import functional

    return functional


def _affine(
    v2: Any, image: Tensor, shift: tuple[float, float], shear: tuple[float, float]
) -> Tensor:
    moved: Tensor = v2.affine(
        image,
        angle=0.0,
        translate=list(shift),
        scale=1.0,
        shear=[math.degrees(math.atan(s)) for s in shear],
        fill=[float(GREY)] * 3,
    )
    return moved


# The ranges are those of the largest magnitude; rotation has one direction, as in the released code.
OPERATIONS: tuple[Operation | None, ...] = (
    lambda v2, image, level, sign: v2.invert(image),
    lambda v2, image, level, sign: v2.adjust_sharpness(image, 1 + sign * 0.9 * level),
    lambda v2, image, level, sign: v2.autocontrast(image),
    lambda v2, image, level, sign: v2.posterize(image, 8 - round(4 * level)),
    lambda v2, image, level, sign: _affine(v2, image, (0, 0), (sign * 0.3 * level, 0)),
    lambda v2, image, level, sign: _affine(v2, image, (0, 0), (0, sign * 0.3 * level)),
    lambda v2, image, level, sign: _affine(
        v2, image, (sign * 0.453 * level * image.shape[2], 0), (0, 0)
    ),
    lambda v2, image, level, sign: _affine(
        v2, image, (0, sign * 0.453 * level * image.shape[1]), (0, 0)
    ),
    lambda v2, image, level, sign: v2.rotate(image, 30 * level, fill=[float(GREY)] * 3),
    lambda v2, image, level, sign: v2.equalize(image),
    lambda v2, image, level, sign: v2.adjust_contrast(image, 1 + sign * 0.9 * level),
    lambda v2, image, level, sign: v2.adjust_saturation(image, 1 + sign * 0.9 * level),
    lambda v2, image, level, sign: v2.solarize(image, 255 - 255 * level),
    lambda v2, image, level, sign: v2.adjust_brightness(image, 1 + sign * 0.9 * level),
    None,  # a small cutout; it needs a centre
)
