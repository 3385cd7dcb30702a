"""RandAugment and cutout for photographs, as in the papers' image code.

The operations are torchvision's functions; every parameter is drawn from the generator passed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from ssmlbench.inputs.torchvision_compat import declare_missing_operators

OPERATIONS_A_ROW = 2
CHANCE = 0.5  # that a drawn operation is applied
LEVELS = 9  # a magnitude is drawn from 1..9 of 9
GREY = 128
SMALL_CUTOUT = 20 / 224  # the largest side of the operation, 20 pixels of the papers' 224
CUTOUT_SIDE = 0.5  # of the image's side; what lies outside the image is clipped
MOST_PLACES = 512 * 512
"""Pixels of the largest images whose moves are kept: 4 bytes for each and for each of 81 moves."""

Fill = list[float] | None
Move = Callable[..., Tensor]
"""(torchvision's functions, an image, a colour, numbers) → the image with its pixels moved."""
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
    chosen, levels, signs = drawn.chosen.tolist(), drawn.levels.tolist(), drawn.signs.tolist()
    applied, centres = drawn.applied.tolist(), drawn.centres.tolist()
    done = torch.empty_like(images)
    for i, image in enumerate(images):
        for j in range(OPERATIONS_A_ROW):
            if not applied[i][j]:
                continue
            operation, level = OPERATIONS[chosen[i][j]], levels[i][j]
            if operation is None:
                image = cut_out(image.clone(), centres[i][j], level * SMALL_CUTOUT, grey)
            else:
                image = operation(functions, image, level, float(signs[i][j]))
        cut_out(done[i].copy_(image), centres[i][-1], CUTOUT_SIDE, drawn.colours[i])
    return done


def cut_out(image: Tensor, centre: Sequence[float], side: float, colour: Tensor) -> Tensor:
    """Colour one square around the centre (y, x in 0..1) in place, its side a share of the image's."""
    height, width = image.shape[1:]
    y, x = centre[0] * height, centre[1] * width
    reach = side * min(height, width) / 2
    top, bottom = max(round(y - reach), 0), min(round(y + reach), height)
    left, right = max(round(x - reach), 0), min(round(x + reach), width)
    image[:, top:bottom, left:right] = colour
    return image


def _functions() -> Any:
    declare_missing_operators()
    from torchvision.transforms.v2 import functional

    return functional


def _moved(image: Tensor, move: Move, *numbers: float) -> Tensor:
    """The image as `move` moves its pixels, grey where none is moved to."""
    height, width = image.shape[1:]
    if height * width > MOST_PLACES:
        return move(_functions(), image, [float(GREY)] * 3, *numbers)
    places = _places(height, width, move, *numbers).astype(np.intp)
    source = np.full(height * width + 1, GREY, np.uint8)
    moved = torch.empty(image.shape, dtype=image.dtype)
    for channel, seen in zip(image.flatten(1).numpy(), moved.flatten(1).numpy(), strict=True):
        source[1:] = channel
        source.take(places, out=seen, mode="wrap")  # other modes copy once more
    return moved


@lru_cache(maxsize=2 * LEVELS * 5)
def _places(height: int, width: int, move: Move, *numbers: float) -> NDArray[np.unsignedinteger]:
    """The pixel that `move` moves to each place, counted from 1; 0 where there is none.

    torchvision moves an image of the pixels' numbers, which float32 holds exactly: the pixels are those
    that it would move. There are 81 ways to move an image of one size, and each takes 1 ms to compute.
    """
    count = height * width
    numbered = torch.arange(1, count + 1, dtype=torch.float32).reshape(1, height, width)
    moved = move(_functions(), numbered, None, *numbers).flatten().numpy()
    return moved.astype(np.min_scalar_type(count))


def _affine(v2: Any, image: Tensor, fill: Fill, x: float, y: float, u: float, v: float) -> Tensor:
    """Move by x, y pixels, and shear by u, v."""
    shear = [math.degrees(math.atan(u)), math.degrees(math.atan(v))]
    moved: Tensor = v2.affine(image, angle=0.0, translate=[x, y], scale=1.0, shear=shear, fill=fill)
    return moved


def _rotate(v2: Any, image: Tensor, fill: Fill, angle: float) -> Tensor:
    rotated: Tensor = v2.rotate(image, angle, fill=fill)
    return rotated


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
    lambda v2, image, level, sign: _moved(image, _affine, 0, 0, sign * 0.3 * level, 0),
    lambda v2, image, level, sign: _moved(image, _affine, 0, 0, 0, sign * 0.3 * level),
    lambda v2, image, level, sign: _moved(
        image, _affine, sign * 0.453 * level * image.shape[2], 0, 0, 0
    ),
    lambda v2, image, level, sign: _moved(
        image, _affine, 0, sign * 0.453 * level * image.shape[1], 0, 0
    ),
    lambda v2, image, level, sign: _moved(image, _rotate, 30 * level),
    lambda v2, image, level, sign: v2.equalize(image),
    lambda v2, image, level, sign: v2.adjust_contrast(image, 1 + sign * 0.9 * level),
    lambda v2, image, level, sign: v2.adjust_saturation(image, 1 + sign * 0.9 * level),
    lambda v2, image, level, sign: v2.solarize(image, 255 - 255 * level),
    lambda v2, image, level, sign: v2.adjust_brightness(image, 1 + sign * 0.9 * level),
    None,  # a small cutout; it needs a centre
)
