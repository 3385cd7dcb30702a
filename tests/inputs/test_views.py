"""Views change what they say they change, and draw only from the generator they are given."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from ssmlbench.core.prefetch import ahead
from ssmlbench.inputs.splits import Inputs, StoredInputs
from ssmlbench.inputs.views import (
    feature_dropout,
    image_views,
    natural_views,
    noise_and_dropout,
    text_views,
)
from ssmlbench.inputs.views.randaugment import (
    OPERATION_NAMES,
    OPERATIONS,
    Augmentation,
    augment_rows,
    cut_out,
)

PAD, CLS, SEP = 0, 2, 3


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def photographs() -> torch.Tensor:
    return torch.randint(0, 256, (8, 3, 32, 32), generator=seeded()).to(torch.uint8)


@pytest.fixture
def ids() -> torch.Tensor:
    """Rows of 12 tokens and fewer: [CLS] 10 11 12 … [SEP] and padding."""
    rows = torch.full((6, 12), PAD)
    for i, length in enumerate((12, 9, 5, 3, 2, 12)):
        rows[i, :length] = torch.arange(9, 9 + length)
        rows[i, 0], rows[i, length - 1] = CLS, SEP
    return rows.int()


def test_weak_photographs_are_the_row_or_its_mirror(photographs: torch.Tensor) -> None:
    seen = natural_views(flips=True)["weak"](photographs, seeded())
    mirrored = [torch.equal(s, p.flip(2)) for s, p in zip(seen, photographs, strict=True)]
    kept = [torch.equal(s, p) for s, p in zip(seen, photographs, strict=True)]
    assert all(m or k for m, k in zip(mirrored, kept, strict=True))
    assert any(mirrored)
    assert any(kept)


def test_no_mirror_where_it_would_change_the_labels(photographs: torch.Tensor) -> None:
    assert torch.equal(natural_views(flips=False)["weak"](photographs, seeded()), photographs)


def test_strong_photographs_differ_by_row_and_stay_uint8(photographs: torch.Tensor) -> None:
    same = photographs[:1].expand(8, -1, -1, -1)
    seen = natural_views(flips=True)["strong"](same, seeded())
    assert seen.dtype == torch.uint8
    assert seen.shape == same.shape
    assert len({row.numpy().tobytes() for row in seen}) == 8


def test_strong_views_do_not_touch_the_global_generator(photographs: torch.Tensor) -> None:
    strong = natural_views(flips=True)["strong"]
    torch.manual_seed(1)
    first, after = strong(photographs, seeded(4)), torch.rand(1)
    torch.manual_seed(1)
    assert after == torch.rand(1)
    torch.manual_seed(2)
    assert torch.equal(first, strong(photographs, seeded(4)))


@pytest.mark.parametrize("number", range(len(OPERATIONS)))
def test_every_operation_keeps_the_shape(number: int, photographs: torch.Tensor) -> None:
    from ssmlbench.inputs.views.randaugment import _functions

    operation = OPERATIONS[number]
    if operation is None:
        pytest.skip("the small cutout is tested by its place")
    for level in (1 / 9, 1.0):
        for sign in (-1.0, 1.0):
            made = operation(_functions(), photographs[0], level, sign)
            assert made.dtype == torch.uint8
            assert made.shape == photographs[0].shape


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (32, 32), (37, 50)])
def test_pixels_are_moved_as_torchvision_moves_them(size: tuple[int, int]) -> None:
    from torchvision.transforms.v2 import functional

    height, width = size
    image = torch.randint(0, 256, (3, *size), generator=seeded()).to(torch.uint8)
    grey = [128.0] * 3

    def affine(x: float, y: float, u: float, v: float) -> torch.Tensor:
        shear = [math.degrees(math.atan(u)), math.degrees(math.atan(v))]
        return functional.affine(image, 0.0, [x, y], 1.0, shear, fill=grey)

    for level in torch.arange(1, 10).div(9).tolist():
        for sign in (-1.0, 1.0):
            shear, share = sign * 0.3 * level, sign * 0.453 * level
            expected = {
                "shear_x": affine(0, 0, shear, 0),
                "shear_y": affine(0, 0, 0, shear),
                "translate_x": affine(share * width, 0, 0, 0),
                "translate_y": affine(0, share * height, 0, 0),
                "rotate": functional.rotate(image, 30 * level, fill=grey),
            }
            for name, moved in expected.items():
                operation = OPERATIONS[OPERATION_NAMES.index(name)]
                assert operation is not None
                assert torch.equal(operation(functional, image, level, sign), moved), name


def test_strong_views_leave_the_rows_as_they_are(photographs: torch.Tensor) -> None:
    before = photographs.clone()
    for step in range(20):
        augment_rows(photographs, Augmentation.draw(len(photographs), seeded(step)))
    assert torch.equal(photographs, before)


def test_cutout_colours_a_square_of_half_the_side(photographs: torch.Tensor) -> None:
    colour = torch.tensor([1, 2, 3]).to(torch.uint8)[:, None, None]
    black = torch.full_like(photographs[0], 77)
    cut = cut_out(black.clone(), [0.5, 0.5], 0.5, colour)
    assert (cut != 77).all(0).sum() == 16 * 16  # half of 32 along each axis
    corner = cut_out(black.clone(), [0.0, 0.0], 0.5, colour)
    assert (corner != 77).all(0).sum() == 8 * 8  # clipped to the quarter that lies inside


def test_patches_of_photographs_are_four_a_row(photographs: torch.Tensor) -> None:
    seen = natural_views(flips=True)["plain-patches"](photographs, seeded())
    assert seen.shape == (32, 3, 32, 32)
    assert seen.dtype == torch.uint8
    quarter = photographs[1, :, :16, :16].float().mean()
    assert abs(seen[4].float().mean() - quarter) < 3


def test_small_images_become_floats() -> None:
    images = torch.full((2, 1, 4, 6), 51, dtype=torch.uint8)
    assert torch.allclose(image_views(False)["plain"](images, seeded()), torch.tensor(0.2))


def test_weak_text_is_as_is(ids: torch.Tensor) -> None:
    views = text_views(PAD, (CLS, SEP))
    assert views["weak"](ids, seeded()) is ids
    assert views["weak"] is views["plain"]


def test_dropped_tokens_leave_no_gap_and_keep_their_order(ids: torch.Tensor) -> None:
    seen = text_views(PAD, (CLS, SEP), dropout=0.5, swap=0.0)["strong"](ids, seeded())
    assert seen.shape == ids.shape
    assert seen.dtype == ids.dtype
    shorter = 0
    for row, before in zip(seen.tolist(), ids.tolist(), strict=True):
        kept = [token for token in row if token != PAD]
        assert row == kept + [PAD] * (len(row) - len(kept))
        ordinary = [t for t in kept if t not in (CLS, SEP)]
        assert ordinary == sorted(ordinary)
        assert set(kept) <= set(before)
        assert kept[0] == CLS
        assert kept[-1] == SEP
        shorter += len(kept) < sum(t != PAD for t in before)
    assert shorter


def test_no_text_is_emptied(ids: torch.Tensor) -> None:
    seen = text_views(PAD, (CLS, SEP), dropout=1.0)["strong"](ids, seeded())
    had_words = (~torch.isin(ids, torch.tensor([PAD, CLS, SEP]).int())).any(1)
    words = ~torch.isin(seen, torch.tensor([PAD, CLS, SEP]).int())
    assert torch.equal(words.sum(1), had_words.long())


def test_swapping_exchanges_neighbours_and_moves_no_special_token(ids: torch.Tensor) -> None:
    strong = text_views(PAD, (CLS, SEP), dropout=0.0, swap=1.0)["strong"]
    seen = strong(ids, seeded())
    special = torch.isin(ids, torch.tensor([PAD, CLS, SEP]).int())
    assert torch.equal(seen[special], ids[special])
    assert torch.equal(seen.sort(1).values, ids.sort(1).values)
    assert (seen - ids)[~special].abs().max() == 1  # the tests' tokens count upwards
    assert not torch.equal(seen, ids)


def test_stored_inputs_give_what_inputs_in_memory_give() -> None:
    values = torch.randint(0, 256, (10, 3, 16, 16), generator=seeded()).to(torch.uint8)
    views = natural_views(flips=True)
    memory = Inputs(values, views)
    stored = StoredInputs(len(values), lambda rows: values[torch.from_numpy(rows)], views)
    rows = np.array([7, 1, 1, 4])
    for view in views:
        assert torch.equal(memory.view(rows, view, seeded(3)), stored.view(rows, view, seeded(3)))
    assert stored.view(rows[:0], "strong", seeded()).shape == (0, 3, 16, 16)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_prefetched_results_come_in_order_and_equal(
    workers: int, photographs: torch.Tensor
) -> None:
    def make(step: int) -> torch.Tensor:
        return augment_rows(photographs, Augmentation.draw(len(photographs), seeded(step)))

    for step, made in enumerate(ahead(make, 9, workers)):
        assert torch.equal(made, make(step))


def test_an_error_in_a_prefetching_thread_reaches_the_reader() -> None:
    def make(step: int) -> int:
        return 1 // (3 - step)

    with pytest.raises(ZeroDivisionError):
        list(ahead(make, 9, 2))


def test_a_reader_that_stops_early_leaves_no_thread_behind() -> None:
    begun: list[int] = []
    results = ahead(begun.append, 1000, 2)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert len(begun) < 20
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: True).result()


def test_a_disturbed_vector_keeps_its_scale() -> None:
    vectors = torch.randn(200, 50, generator=torch.Generator().manual_seed(1))
    for scale in (1e-3, 1.0, 1e3):
        seen = noise_and_dropout(scale * vectors, torch.Generator().manual_seed(0))
        kept = seen != 0
        assert abs(float(kept.float().mean()) - 0.5) < 0.02
        change = ((seen / 2 - scale * vectors) / scale)[kept]  # half are kept, at twice their size
        assert float(change.std()) == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 50, 51])
def test_features_are_dropped_independently_and_at_the_rate_asked_for(width: int) -> None:
    vectors = torch.ones(8000, width)
    seen = feature_dropout(vectors, torch.Generator().manual_seed(0), dropout=0.3)
    kept = (seen != 0).double()
    # Four standard errors of a mean over 8000 coins of 0.7, and of the product of two.
    assert float((kept.mean(0) - 0.7).abs().max()) < 4 * (0.7 * 0.3 / 8000) ** 0.5
    together = kept.T @ kept / 8000 - torch.eye(width).double() * 0.7
    apart = together[~torch.eye(width, dtype=torch.bool)]
    if width > 1:
        assert float((apart - 0.49).abs().max()) < 4.5 * (0.49 * 0.51 / 8000) ** 0.5
    assert torch.allclose(seen[seen != 0], torch.tensor(1 / 0.7))
