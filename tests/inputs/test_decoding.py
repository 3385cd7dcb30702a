"""Image files are decoded to the pixels that `prepare` gives; --scaled-decoding and --fast-resize."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from ssmlbench.core.errors import UserError
from ssmlbench.data import images, prepare
from ssmlbench.inputs.decoding import Shortcuts, SquareDecoder
from ssmlbench.inputs.frozen import FrozenEncoder
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.resolve import resolve
from tests.support.photographs import OPTIONS, SIZE, Squares, photograph


@pytest.mark.parametrize("orientation", range(1, 9))
def test_files_are_turned_as_their_orientation_says(orientation: int, tmp_path: Path) -> None:
    import datasets

    exif = Image.Exif()
    exif[0x0112] = orientation
    content = photograph(0, exif=exif)
    stored = datasets.Dataset.from_dict(
        {"input": [{"bytes": content, "path": None}]},
        features=datasets.Features({"input": datasets.Image()}),
    )
    before = stored.with_format("numpy")["input"][0]  # how a row is handed to `prepare`
    assert np.array_equal(np.asarray(images.opened(content)), before)


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_files_are_decoded_as_prepare_does(mode: str, interpolation: str) -> None:
    class Resized(Squares):
        pass

    Resized.interpolation = interpolation
    content = io.BytesIO()
    Image.open(io.BytesIO(photograph(3))).convert(mode).save(content, format="PNG")
    raw = np.array(Image.open(io.BytesIO(content.getvalue())))
    decoder = SquareDecoder([content.getvalue()], SIZE, interpolation)  # type: ignore[arg-type]
    assert np.array_equal(decoder.decode(np.array([0])), Resized.prepare([raw], OPTIONS).numpy())


def squares_of(contents: list[bytes], scaled: bool = True) -> np.ndarray:
    decoder = SquareDecoder(contents, SIZE, shortcuts=Shortcuts(scaled))  # type: ignore[arg-type]
    return decoder.decode(np.arange(len(contents)))


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("saved", [{}, {"progressive": True}])
def test_scaled_decoding_reads_fewer_pixels_of_a_large_jpeg(
    mode: str, saved: dict[str, Any]
) -> None:
    drawn = Image.open(io.BytesIO(photograph(0, (8 * SIZE, 6 * SIZE)))).convert(mode)
    content = io.BytesIO()
    drawn.save(content, "JPEG", quality=95, **saved)
    file = content.getvalue()
    assert images.opened(file, SIZE).size == (2 * SIZE, 3 * SIZE // 2)  # a quarter
    assert images.opened(file).size == (8 * SIZE, 6 * SIZE)
    whole, scaled = (squares_of([file], how).astype(int) for how in (False, True))
    assert np.abs(whole - scaled).mean() < 3
    assert not np.array_equal(whole, scaled)


def test_scaled_decoding_turns_images_as_their_orientation_says() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    upright, turned = photograph(1, (64, 96)), photograph(1, (64, 96), exif=exif)
    expected = np.rot90(squares_of([upright])[0], k=-1, axes=(1, 2)).astype(int)
    assert np.abs(expected - squares_of([turned])[0]).mean() < 3


def test_scaled_decoding_leaves_small_and_other_files_as_they_are() -> None:
    content = io.BytesIO()
    Image.open(io.BytesIO(photograph(2, (90, 80)))).save(content, "PNG")
    contents = [content.getvalue(), photograph(3, (SIZE + 3, SIZE + 1)), photograph(4, (5, 400))]
    np.testing.assert_array_equal(squares_of(contents), squares_of(contents, False))


@pytest.mark.parametrize("shortcut", ["scaled_decoding", "fast_resize"])
def test_a_shortcut_is_a_setting_of_its_own_and_for_squashed_images_only(
    tiny: Plugins, shortcut: str
) -> None:
    fields: dict[str, Any] = {"method": "bce", "pi": 0.3, "dataset": "tiny-images"}
    squashed = {"backbone": "squeezenet1_1", "weights": "none", "image_size": 32}
    plain, quick = (
        resolve(tiny, {}, **fields, **squashed, **{shortcut: chosen}) for chosen in (False, True)
    )
    assert quick.hash != plain.hash
    task = prepare(tiny.datasets["tiny-images"]())
    keys = [
        FrozenEncoder(spec, Squares, task, torch.device("cpu")).key("train", "plain", 0)
        for spec in (plain, quick)
    ]
    assert keys[1] == keys[0] | {shortcut: True}
    flag = f"--{shortcut.replace('_', '-')}"
    with pytest.raises(UserError, match=f"{flag} is for image files that are squashed"):
        resolve(tiny, {}, **fields, backbone="small-cnn", **{shortcut: True})


def test_images_are_resized_fast_unless_the_encoder_is_frozen(tiny: Plugins) -> None:
    fields: dict[str, Any] = {"method": "bce", "pi": 0.3, "dataset": "tiny-images"}
    squashed = {"backbone": "squeezenet1_1", "weights": "none", "image_size": 32}
    trained, frozen = (resolve(tiny, {}, **fields, **squashed, freeze=f) for f in (False, True))
    as_they_are = resolve(tiny, {}, **fields, backbone="small-cnn")
    assert [spec.fast_resize for spec in (trained, frozen, as_they_are)] == [True, False, False]


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(1, 1), (7, 3), (33, 50), (301, 200), (2100, 2100)])
def test_a_fast_resize_is_that_of_the_copied_pixels(
    size: tuple[int, int], interpolation: str
) -> None:
    """2,100 × 2,100 pixels are in several blocks of Pillow's memory."""
    drawn = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    pixels = torch.from_numpy(drawn).permute(2, 0, 1)[None]
    expected = torch.nn.functional.interpolate(
        pixels, (SIZE, SIZE), mode=interpolation, antialias=True
    )[0].permute(1, 2, 0)
    image = Image.fromarray(drawn)
    squashed = images.squashed(image, SIZE, interpolation, fast=True)
    del image  # the pixels are copied by then
    np.testing.assert_array_equal(squashed, expected.numpy())


def test_a_fast_resize_copies_no_pixel_out_of_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    image = Image.open(io.BytesIO(photograph(0)))
    image.load()
    if not hasattr(image, "__arrow_c_array__"):
        pytest.skip("this Pillow does not share its memory")
    monkeypatch.setattr(Image.Image, "tobytes", None)
    assert images.squashed(image, SIZE, fast=True).shape == (SIZE, SIZE, 3)
