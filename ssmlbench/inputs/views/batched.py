"""RandAugment and cutout for a whole batch at once, on the device that holds it.

The parameters are drawn on the CPU (randaugment.py). Positions, counts and means are computed with
integers, so that every device sees the same augmentation; the CPU's own path rounds a few pixels
differently.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ssmlbench.inputs.views.randaugment import (
    CUTOUT_SIDE,
    GREY,
    OPERATION_NAMES,
    SMALL_CUTOUT,
    Augmentation,
    blurred,
)

FIXED_POINT = 20
"""Binary digits after the point of an affine map's numbers."""

OperationNumbers = dict[str, Tensor]
"""Parameters of n rows on their device, by name: n × 1 × 1 × 1, `map` n × 6, `box` n × 4."""
BatchOperation = Callable[[Tensor, OperationNumbers], Tensor]


def augment_batch(images: Tensor, drawn: Augmentation) -> Tensor:
    """Apply the operations drawn to B × 3 × S × S uint8 on any device, then cutout."""
    images = images.clone()
    for turn in range(drawn.chosen.shape[1]):
        chosen = torch.where(drawn.applied[:, turn], drawn.chosen[:, turn], len(OPERATION_NAMES))
        order = chosen.argsort(stable=True)
        numbers = _numbers(drawn, turn, order, images)
        rows = order.to(images.device, non_blocking=True)
        start = 0
        for operation, count in enumerate(chosen.bincount(minlength=len(OPERATION_NAMES)).tolist()):
            if operation == len(OPERATION_NAMES):
                break  # these rows stay as they are
            if count:
                part = slice(start, start + count)
                own = {name: value[part] for name, value in numbers.items()}
                changed = BATCH_OPERATIONS[OPERATION_NAMES[operation]](images[rows[part]], own)
                images[rows[part]] = changed
                start += count
    boxes = _boxes(drawn.centres[:, -1], torch.full((len(images),), CUTOUT_SIDE), images)
    there = [tensor.to(images.device, non_blocking=True) for tensor in (boxes, drawn.colours)]
    return _fill(images, *there)


def _numbers(drawn: Augmentation, turn: int, order: Tensor, images: Tensor) -> OperationNumbers:
    """The parameters of one turn, its rows in the order given, on the images' device in one copy."""
    level, sign = drawn.levels[:, turn].double(), drawn.signs[:, turn].double()
    factor = 1 + sign * 0.9 * level
    columns = {
        "factor": factor[:, None],
        "rest": 1 - factor[:, None],
        "threshold": 255 - 255 * level[:, None],
        "kept": (256 - 2 ** (4 * level).round())[:, None],  # posterise: the mask of the bits kept
        "map": _maps(drawn.chosen[:, turn], level, sign, images),
        "box": _boxes(drawn.centres[:, turn], level * SMALL_CUTOUT, images),
    }
    together = torch.cat([column.float() for column in columns.values()], dim=1)[order]
    parts = together.to(images.device, non_blocking=True).split(
        [column.shape[1] for column in columns.values()], dim=1
    )
    numbers = dict(zip(columns, parts, strict=True))
    return {n: v if n in ("map", "box") else v[..., None, None] for n, v in numbers.items()}


# ------------------------------------------------------------------------------ colours


def _uint8(values: Tensor) -> Tensor:
    return values.clamp_(0, 255).to(torch.uint8)


def _blend(images: Tensor, other: Tensor, numbers: OperationNumbers) -> Tensor:
    """Factor · image + (1 - factor) · other. Two products and a sum: no device may fuse them."""
    return _uint8(images * numbers["factor"] + other * numbers["rest"])


def _grey(images: Tensor) -> Tensor:
    red, green, blue = images.unbind(1)
    return (red * 0.2989 + green * 0.587 + blue * 0.114).floor_().unsqueeze_(1)


def _contrast(images: Tensor, numbers: OperationNumbers) -> Tensor:
    total = _grey(images).long().sum(dim=(1, 2, 3), keepdim=True)
    return _blend(images, total.float() / (images.shape[2] * images.shape[3]), numbers)


def _sharpness(images: Tensor, numbers: OperationNumbers) -> Tensor:
    if min(images.shape[2:]) <= 2:
        return images
    inside = images[:, :, 1:-1, 1:-1].float()
    seen = images.clone()
    change = (blurred(images) - inside) * numbers["rest"]
    seen[:, :, 1:-1, 1:-1] = _uint8(inside + change)
    return seen


def _autocontrast(images: Tensor, numbers: OperationNumbers) -> Tensor:
    floats = images.float()
    low, high = floats.amin((2, 3), keepdim=True), floats.amax((2, 3), keepdim=True)
    flat = low == high
    scale = ((high - low) * (1 / 255)).masked_fill_(flat, 1.0)
    return _uint8((floats - low.masked_fill(flat, 0.0)) / scale)


def _equalize(images: Tensor, numbers: OperationNumbers) -> Tensor:
    """Histogram equalisation by Pillow's scheme; counts come from sorting, which is deterministic."""
    flat = images.flatten(2)
    values = torch.arange(256, device=images.device).expand(*flat.shape[:2], 256)
    sorted_values = flat.to(torch.int32).sort(dim=2).values.contiguous()
    at_most = torch.searchsorted(sorted_values, values.to(torch.int32).contiguous(), right=True)
    brightest = sorted_values[..., -1:].long()
    below = torch.where(brightest > 0, at_most.gather(2, (brightest - 1).clamp(min=0)), 0)
    step = below.div(255, rounding_mode="floor")  # `below`: all pixels but the brightest
    table = (at_most[..., :-1] + step // 2).div(step.clamp(min=1), rounding_mode="floor")
    table = torch.cat([torch.zeros_like(step), table.clamp_(max=255)], dim=2)
    table = torch.where(step > 0, table, values)
    return table.gather(2, flat.long()).to(torch.uint8).view_as(images)


# ----------------------------------------------------------------------------- positions


def _maps(chosen: Tensor, level: Tensor, sign: Tensor, images: Tensor) -> Tensor:
    """The affine maps, from result to source pixels, of rows whose operation moves pixels. B × 6."""
    height, width = images.shape[2:]
    zero, one = torch.zeros_like(level), torch.ones_like(level)
    shear, angle = sign * 0.3 * level, torch.deg2rad(-30 * level)
    cosine, sine = angle.cos(), angle.sin()
    by_name = {
        "shear_x": (one, shear, zero, zero, one, zero),
        "shear_y": (one, zero, zero, shear, one, zero),
        "translate_x": (one, zero, -sign * 0.453 * level * width, zero, one, zero),
        "translate_y": (one, zero, zero, zero, one, -sign * 0.453 * level * height),
        "rotate": (cosine, sine, zero, -sine, cosine, zero),
    }
    maps = torch.stack([one, zero, zero, zero, one, zero], dim=1)
    for name, numbers in by_name.items():
        own = chosen == OPERATION_NAMES.index(name)
        maps = torch.where(own[:, None], torch.stack(numbers, dim=1), maps)
    # Round here, on the CPU: a float32 holds 24 binary digits.
    fixed: Tensor = (maps * 2**FIXED_POINT).round() / 2**FIXED_POINT
    return fixed


def _move(images: Tensor, numbers: OperationNumbers) -> Tensor:
    """Each pixel from the nearest one of its affine map; grey where that lies outside."""
    height, width = images.shape[2:]
    fixed = (numbers["map"] * 2**FIXED_POINT).long()  # whole numbers already
    a, b, c, d, e, f = fixed[..., None, None].unbind(1)
    # Twice the distance from the centre of the image, so that all numbers are whole.
    x = torch.arange(1 - width, width, 2, device=images.device)
    y = torch.arange(1 - height, height, 2, device=images.device)[:, None]
    columns = _nearest(a * x + b * y + 2 * c, width)
    rows = _nearest(d * x + e * y + 2 * f, height)
    outside = (columns < 0) | (columns >= width) | (rows < 0) | (rows >= height)
    places = rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)
    places = places.flatten(1)[:, None].expand(-1, images.shape[1], -1)
    moved = images.flatten(2).gather(2, places).view_as(images)
    return moved.masked_fill_(outside[:, None], GREY)


def _nearest(twice: Tensor, size: int) -> Tensor:
    """The nearest pixel of a fixed-point distance from the centre, given twice."""
    half = 1 << FIXED_POINT
    return (twice + (size - 1) * half + half).div(2 * half, rounding_mode="floor")


def _boxes(centres: Tensor, sides: Tensor, images: Tensor) -> Tensor:
    """B × 4: top, bottom, left, right of squares, clipped. sides: shares of the image's side."""
    height, width = images.shape[2:]
    y, x = centres[:, 0].double() * height, centres[:, 1].double() * width
    reach = sides.double() * min(height, width) / 2
    edges = (y - reach, y + reach, x - reach, x + reach)
    most = (height, height, width, width)
    return torch.stack([e.round().clamp(0, m) for e, m in zip(edges, most, strict=True)], dim=1)


def _fill(images: Tensor, boxes: Tensor, colours: Tensor | int) -> Tensor:
    height, width = images.shape[2:]
    top, bottom, left, right = boxes[..., None].unbind(1)
    y, x = torch.arange(height, device=images.device), torch.arange(width, device=images.device)
    inside = ((y >= top) & (y < bottom))[:, None, :, None] & ((x >= left) & (x < right))[
        :, None, None
    ]
    return torch.where(inside, colours, images)


BATCH_OPERATIONS: dict[str, BatchOperation] = {
    "invert": lambda images, numbers: images.bitwise_not(),
    "sharpness": _sharpness,
    "autocontrast": _autocontrast,
    "posterize": lambda images, numbers: images & numbers["kept"].to(torch.uint8),
    "shear_x": _move,
    "shear_y": _move,
    "translate_x": _move,
    "translate_y": _move,
    "rotate": _move,
    "equalize": _equalize,
    "contrast": _contrast,
    "saturation": lambda images, numbers: _blend(images, _grey(images), numbers),
    "solarize": lambda images, numbers: torch.where(
        images >= numbers["threshold"], images.bitwise_not(), images
    ),
    "brightness": lambda images, numbers: _uint8(images * numbers["factor"]),
    "cutout": lambda images, numbers: _fill(images, numbers["box"], GREY),
}
