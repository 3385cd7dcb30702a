"""RandAugment and cutout for photographs, as in the papers' image code.

The operations are torchvision's functions; every parameter is drawn from the generator passed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from ssmlbench.inputs.torchvision_compat import declare_missing_operators

OPERATIONS_A_ROW = 2
CHANCE = 0.5  # that a drawn operation is applied
LEVELS = 9  # a magnitude is drawn from 1..9 of 9
GREY = 128
SMALL_CUTOUT = 20 / 224  # the largest side of the operation, 20 pixels of the papers' 224
CUTOUT_SIDE = 0.5  # of the image's side; what lies outside the image is clipped

Operation = Callable[[Any, Tensor, float, float], Tensor]
"""(torchvision's functions, a 3 × S × S image, magnitude in 0..1, sign) → the image."""


@dataclass(frozen=True)
class Augmentation:
    """The parameters of RandAugment and cutout for B rows, drawn on the CPU."""

    chosen: Tensor  # B × 2, numbers of operations
    levels: Tensor  # B × 2, magnitudes in 0..1
    applied: Tensor  # B × 2
    signs: Tensor  # B × 2
    centres: Tensor  # B × 3 × 2, of the cutouts
    colours: Tensor  # B × 3 × 1 × 1, of the last cutout

    @classmethod
    def draw(cls, rows: int, generator: Generator) -> Augmentation:
        """Draw the parameters of `rows` rows."""
        chosen = torch.randint(0, len(OPERATIONS), (rows, OPERATIONS_A_ROW), generator=generator)
        levels = torch.randint(1, LEVELS + 1, chosen.shape, generator=generator) / LEVELS
        applied = torch.rand(chosen.shape, generator=generator) < CHANCE
        signs = torch.randint(0, 2, chosen.shape, generator=generator) * 2 - 1
        centres = torch.rand((rows, OPERATIONS_A_ROW + 1, 2), generator=generator)
        colours = torch.randint(0, 256, (rows, 3, 1, 1), generator=generator).to(torch.uint8)
        return cls(chosen, levels, applied, signs, centres, colours)


def augment_rows(images: Tensor, drawn: Augmentation) -> Tensor:
    """Apply to each row of B × 3 × S × S uint8 its operations, then cutout: the path of the CPU."""
    functions = _functions()
    grey = torch.full((3, 1, 1), GREY, dtype=torch.uint8)
    done = []
    for i, image in enumerate(images):
        for j in range(OPERATIONS_A_ROW):
            if not drawn.applied[i, j]:
                continue
            operation, level = OPERATIONS[int(drawn.chosen[i, j])], float(drawn.levels[i, j])
            if operation is None:
                image = cut_out(image, drawn.centres[i, j], level * SMALL_CUTOUT, grey)
            else:
                image = operation(functions, image, level, float(drawn.signs[i, j]))
        done.append(cut_out(image, drawn.centres[i, -1], CUTOUT_SIDE, drawn.colours[i]))
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


def _sharpened(image: Tensor, factor: float) -> Tensor:
    """Sharpen as torchvision's adjust_sharpness, with a blur in integers, in a quarter of the time."""
    if min(image.shape[-2:]) <= 2:
        return image
    seen = image.float()
    inside = seen[..., 1:-1, 1:-1]
    inside.add_(blurred(image).sub_(inside), alpha=1.0 - factor)
    return seen.clamp_(0, 255).to(torch.uint8)


def blurred(images: Tensor) -> Tensor:
    """The inside of … × H × W uint8 images under the 3 × 3 kernel of eight 1 and a 5, rounded.

    The sum of the kernel, 13, is odd: no mean lies half-way, and integers round as floats do.
    """
    wide = images.to(torch.int16)
    rows = wide[..., :-2, :] + wide[..., 1:-1, :]
    rows += wide[..., 2:, :]
    total = rows[..., :-2] + rows[..., 1:-1]
    total += rows[..., 2:]
    total += 4 * wide[..., 1:-1, 1:-1]
    return total.float().mul_(1 / 13).round_()


OPERATION_NAMES = (
    "invert", "sharpness", "autocontrast", "posterize", "shear_x", "shear_y", "translate_x",
    "translate_y", "rotate", "equalize", "contrast", "saturation", "solarize", "brightness", "cutout",
)  # fmt: skip
"""The names of the operations below, in their order."""

# The ranges are those of the largest magnitude; rotation has one direction, as in the released code.
OPERATIONS: tuple[Operation | None, ...] = (
    lambda v2, image, level, sign: v2.invert(image),
    lambda v2, image, level, sign: _sharpened(image, 1 + sign * 0.9 * level),
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
