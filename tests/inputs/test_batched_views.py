"""Views applied as a batch, as a GPU does, are those that the CPU applies row by row, but for rounding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ssmlbench.inputs.torchvision_compat import declare_missing_operators
from ssmlbench.inputs.views import DrawnView, natural_views
from ssmlbench.inputs.views.batched import BATCH_OPERATIONS, augment_batch
from ssmlbench.inputs.views.randaugment import (
    LEVELS,
    OPERATION_NAMES,
    OPERATIONS,
    Augmentation,
    augment_rows,
)
from tests.support.simulated_device import SimulatedDevice

MOVES = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")
HALF_WAY = 0.03
"""The share of moved pixels that may lie half-way between two: either is the nearest."""


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def photographs(rows: int, height: int, width: int) -> Tensor:
    """Smooth images with some noise, and one of a single colour."""
    coarse = torch.rand((rows, 3, 5, 5), generator=seeded()) * 255
    smooth = F.interpolate(coarse, size=(height, width), mode="bicubic", align_corners=False)
    noise = torch.randn((rows, 3, height, width), generator=seeded(1)) * 4
    images = (smooth + noise).clamp(0, 255).to(torch.uint8)
    images[-1] = 77
    return images


def every_level(operation: int, rows: int = 2 * LEVELS) -> Augmentation:
    """One operation at every level and sign, and then the last cutout."""
    number = torch.arange(rows)
    twice = torch.stack([number, number], dim=1)
    return Augmentation(
        torch.full((rows, 2), operation),
        (twice % LEVELS + 1) / LEVELS,
        torch.tensor([[True, False]]).expand(rows, 2).clone(),
        twice // LEVELS % 2 * 2 - 1,
        torch.rand((rows, 3, 2), generator=seeded(2)),
        torch.randint(0, 256, (rows, 3, 1, 1), generator=seeded(3)).to(torch.uint8),
    )


def test_every_operation_has_a_batched_form() -> None:
    assert len(OPERATION_NAMES) == len(OPERATIONS)
    assert tuple(BATCH_OPERATIONS) == OPERATION_NAMES


@pytest.mark.parametrize("size", [(32, 32), (33, 47)], ids=["even", "odd"])
@pytest.mark.parametrize("name", OPERATION_NAMES)
def test_a_batch_is_what_its_rows_are(name: str, size: tuple[int, int]) -> None:
    images = photographs(2 * LEVELS, *size)
    drawn = every_level(OPERATION_NAMES.index(name))
    before = images.clone()
    by_row, as_batch = augment_rows(images, drawn).int(), augment_batch(images, drawn).int()
    assert torch.equal(images, before)
    changed = (by_row - as_batch).abs()
    if name in MOVES:
        assert float((changed > 0).float().mean()) < HALF_WAY
        assert _neighbours(by_row, as_batch, images.int())
    else:
        assert int(changed.max()) <= 1
        assert float((changed > 0).float().mean()) < 0.01


def _neighbours(first: Tensor, second: Tensor, images: Tensor) -> bool:
    """Whether each pixel that differs is a pixel of the image, or the fill, in both."""
    rows = (first != second).any(dim=1).nonzero()[:, 0].unique().tolist()
    for row in rows:
        colours = {tuple(c) for c in images[row].flatten(1).T.tolist()} | {(128, 128, 128)}
        where = (first[row] != second[row]).any(dim=0)
        for seen in (first, second):
            if not {tuple(c) for c in seen[row][:, where].T.tolist()} <= colours:
                return False
    return True


@pytest.mark.parametrize("flips", [True, False])
@pytest.mark.parametrize("name", ["weak", "strong", "strong-patches", "weak-patches"])
def test_the_device_sees_the_augmentation_that_the_cpu_sees(name: str, flips: bool) -> None:
    images = photographs(64, 32, 32)
    view = natural_views(flips)[name]
    if not isinstance(view, DrawnView):
        assert not flips  # nothing is drawn
        assert name.startswith("weak")
        return
    on_cpu = view(images, seeded(5))
    on_device = view.on_device(images, view.draw(len(images), seeded(5)))
    assert on_cpu.dtype == on_device.dtype == torch.uint8
    different = (on_cpu != on_device).float().mean()
    close = (on_cpu.int() - on_device.int()).abs() <= 1
    assert float((~close).float().mean()) < 0.01
    assert float(different) < (0.02 if name.startswith("strong") else 1e-9)
    other = view.on_device(images, view.draw(len(images), seeded(6)))
    assert float((on_device != other).float().mean()) > 0.2


def test_views_are_applied_on_a_device_without_a_wait_and_with_the_bits_of_the_batch() -> None:
    images, view = photographs(12, 16, 16), natural_views(flips=True)["strong"]
    assert isinstance(view, DrawnView)
    drawn = view.draw(len(images), seeded(5))
    with SimulatedDevice() as sim:
        there = images.to(sim.device)
        before = sim.traffic.copied()
        seen = view.on_device(there, drawn)
        traffic = sim.traffic.since(before)
        found = seen.cpu()
    assert not traffic.waits
    assert not traffic.to_host
    assert torch.equal(found, view.on_device(images, drawn))


@pytest.mark.parametrize("size", [(2, 9), (16, 16), (61, 40)], ids=str)
def test_sharpening_in_integers_has_the_bits_of_torchvision(size: tuple[int, int]) -> None:
    declare_missing_operators()
    from torchvision.transforms.v2 import functional

    images = torch.randint(0, 256, (2 * LEVELS, 3, *size), generator=seeded()).to(torch.uint8)
    sharpen = OPERATIONS[OPERATION_NAMES.index("sharpness")]
    assert sharpen is not None
    for number, image in enumerate(images):
        level, sign = (number % LEVELS + 1) / LEVELS, float(number // LEVELS * 2 - 1)
        expected = functional.adjust_sharpness(image, 1 + sign * 0.9 * level)
        assert torch.equal(sharpen(functional, image, level, sign), expected)


def test_the_parameters_are_drawn_whatever_device_applies_them() -> None:
    view = natural_views(True)["strong"]
    assert isinstance(view, DrawnView)
    after_call, after_draw = seeded(9), seeded(9)
    view(photographs(4, 8, 8), after_call)
    view.draw(4, after_draw)
    assert torch.equal(torch.rand(3, generator=after_call), torch.rand(3, generator=after_draw))
