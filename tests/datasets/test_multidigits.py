"""The embedded data set: real digits, disjoint sources, a long tail, groups, and always the same."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
import torch

from ssmlbench.core.paths import builtin_root
from ssmlbench.data import Row, prepare
from ssmlbench.inputs.views import image_views
from ssmlbench.plugins.loader import Plugins, load_file

multidigits = load_file(builtin_root() / "datasets" / "multidigits.py")


@pytest.fixture(scope="module")
def truth(plugins: Plugins) -> np.ndarray:
    return prepare(plugins.datasets["multidigits"]()).truth("train")


def first_rows(split: str) -> Iterator[Row]:
    return islice(multidigits.Multidigits().rows(split), 20)


def test_rows_are_small_images_with_one_to_three_digits() -> None:
    for row in first_rows("train"):
        assert row.input.shape == (10, 30)
        assert row.input.dtype == np.uint8
        assert 1 <= len(row.labels) <= 3


def test_the_same_rows_come_every_time() -> None:
    for one, two in zip(first_rows("test"), first_rows("test"), strict=True):
        assert np.array_equal(one.input, two.input)
        assert one.labels == two.labels


def test_no_handwriting_sample_is_in_both_splits() -> None:
    train, test = (
        np.concatenate(multidigits.source_digits(split)[1]) for split in ("train", "test")
    )
    assert not set(train) & set(test)
    assert len(train) + len(test) == 1797


def test_labels_are_long_tailed_and_all_there(truth: np.ndarray) -> None:
    rate = truth.mean(axis=0)
    assert truth.shape == (4000, 10)
    assert rate.max() > 3 * rate.min()
    assert truth.sum(axis=0).min() >= 200


def test_digits_of_one_group_attract_each_other(truth: np.ndarray) -> None:
    together = (truth.T.astype(float) @ truth) / len(truth)
    lift = together / np.outer(truth.mean(axis=0), truth.mean(axis=0))
    group_of = {digit: g for g, group in enumerate(multidigits.GROUPS) for digit in group}
    pairs = [(i, j) for i in range(10) for j in range(i)]
    inside = np.mean([lift[i, j] for i, j in pairs if group_of[i] == group_of[j]])
    outside = np.mean([lift[i, j] for i, j in pairs if group_of[i] != group_of[j]])
    assert inside > 2 * outside


def test_a_strong_view_changes_more_than_a_weak_one_and_never_mirrors() -> None:
    images = torch.from_numpy(np.stack([row.input for row in first_rows("train")]))[:, None]
    views = image_views(flips=False)
    plain, weak, strong = (
        views[name](images, torch.Generator().manual_seed(0))
        for name in ("plain", "weak", "strong")
    )
    for seen in (weak, strong):
        assert seen.shape == images.shape
        assert seen.min() >= 0
        assert seen.max() <= 1
    # A weak view is one of nine shifts: some shift of the plain image is it exactly, inside.
    padded = torch.nn.functional.pad(plain, (1, 1, 1, 1))
    shifts = torch.stack([padded[..., y : y + 10, x : x + 30] for y in range(3) for x in range(3)])
    assert ((shifts - weak).abs().amax(dim=(2, 3, 4)).amin(dim=0) == 0).all()
    assert ((shifts - strong).abs().amax(dim=(2, 3, 4)).amin(dim=0) > 0.1).all()
