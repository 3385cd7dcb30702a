"""Images of every mode become 8-bit grey or RGB by a fixed rule."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.core.errors import UserError
from ssmlbench.data import Task, prepare
from ssmlbench.data.user_data import data_class
from ssmlbench.inputs.encoders.base import square
from tests.support.raw_layouts import jpeg, put

pytestmark = pytest.mark.usefixtures("empty_cache")


def saved(image: Image.Image, form: str = "PNG", **more: Any) -> bytes:
    content = io.BytesIO()
    image.save(content, format=form, **more)
    return content.getvalue()


def png_of_16_bits(values: np.ndarray, colour_type: int) -> bytes:
    """A PNG file with 16 bits a channel, which Pillow cannot write: 0 grey, 2 RGB, 4 grey and alpha."""
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in values)

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    size = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], 16, colour_type, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size)
    return start + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def folder_with(folder: Path, *images: bytes) -> Path:
    for n, image in enumerate(images):
        put(folder / f"{n}.img", image)
    lines = "".join(f"{n}.img,a\n" for n in range(len(images)))
    put(folder / "train.csv", f"image,labels\n{lines}")
    return folder


def pixels(task: Task, row: int = 0) -> Any:
    return np.asarray(task.inputs("train")[row]).astype(int)


def read(folder: Path, **options: Any) -> Task:
    return prepare(data_class(DataAddress(str(folder), DataOptions(**options)))())


RAMP = np.linspace(0, 65535, 12).round().reshape(3, 4).astype(np.uint16)
EIGHT = np.linspace(0, 255, 12).round().reshape(3, 4).astype(int)


def grey_cases() -> dict[str, bytes]:
    return {
        "16-bit PNG": png_of_16_bits(RAMP, 0),
        "16-bit TIFF": saved(Image.fromarray(RAMP), "TIFF"),
        "32-bit TIFF": saved(Image.fromarray(RAMP.astype(np.int32)), "TIFF"),
        "float TIFF": saved(Image.fromarray((RAMP / 65535).astype(np.float32)), "TIFF"),
        "big-endian TIFF": saved(
            Image.frombytes("I;16B", (4, 3), RAMP.astype(">u2").tobytes()), "TIFF"
        ),
    }


@pytest.mark.parametrize("case", grey_cases())
def test_grey_of_more_than_8_bits_is_scaled_by_its_depth(case: str, tmp_path: Path) -> None:
    task = read(folder_with(tmp_path / "d", grey_cases()[case]))
    assert np.abs(pixels(task) - EIGHT).max() <= 1
    assert any("converted to 8-bit" in note for note in task.card.notes)


def test_16_bits_of_colour_are_scaled_too(tmp_path: Path) -> None:
    colours = np.stack([RAMP, RAMP[::-1], RAMP // 2], axis=2)
    task = read(folder_with(tmp_path / "d", png_of_16_bits(colours, 2)))
    assert np.abs(pixels(task) - colours / 257).max() <= 1


def test_other_colour_models_become_rgb(tmp_path: Path) -> None:
    red = Image.new("RGB", (4, 3), (200, 30, 60))
    images = {
        "palette": saved(red.quantize(4)),
        "CMYK": saved(red.convert("CMYK"), "TIFF"),
        "CMYK JPEG": saved(red.convert("CMYK"), "JPEG", quality=100),
        "GIF": saved(red, "GIF"),
        "black and white": saved(Image.fromarray(EIGHT.astype(np.uint8)).convert("1")),
    }
    task = read(folder_with(tmp_path / "d", *images.values()))
    for row in range(4):
        assert np.abs(pixels(task, row) - (200, 30, 60)).max() <= 4, list(images)[row]
    assert set(pixels(task, 4).ravel()) == {0, 255}


def test_what_is_transparent_is_white(tmp_path: Path) -> None:
    half = Image.new("RGBA", (4, 3), (200, 0, 0, 0))
    half.paste((10, 20, 30, 255), (0, 0, 2, 3))
    grey = Image.merge("LA", (half.getchannel("B"), half.getchannel("A")))
    paletted = Image.new("P", (4, 3), 0)
    paletted.putpalette([200, 0, 0, 10, 20, 30])
    paletted.paste(1, (0, 0, 2, 3))
    images = [
        saved(half),
        saved(grey),
        saved(paletted, transparency=0),
        saved(half, "WEBP", lossless=True),
    ]
    task = read(folder_with(tmp_path / "d", *images))
    for row, colour in enumerate([(10, 20, 30), (30, 30, 30), (10, 20, 30), (10, 20, 30)]):
        assert pixels(task, row)[:, :2].reshape(-1, 3).tolist() == [list(colour)] * 6
        assert (pixels(task, row)[:, 2:] == 255).all()


def test_a_photograph_is_turned_upright_and_of_an_animation_the_first_picture_counts(
    tmp_path: Path,
) -> None:
    tall = Image.new("RGB", (4, 8), (10, 20, 30))
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    frames = [Image.new("RGB", (4, 3), (9 * n, 0, 0)) for n in (1, 20)]
    deep = Image.fromarray(np.zeros((8, 4), np.uint16))
    images = [
        saved(tall, "JPEG", exif=exif),
        saved(deep, "TIFF", exif=exif),
        saved(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True),
    ]
    task = read(folder_with(tmp_path / "d", *images))
    assert pixels(task, 0).shape == (4, 8, 3)
    assert pixels(task, 1).shape[:2] == (4, 8)
    assert (pixels(task, 2)[..., 0] == 9).all()
    assert (pixels(task, 3)[..., 0] == 9).all()


@pytest.mark.parametrize("values", [[-5.0, 0.5], [0.0, 300.0], [0.0, np.nan], [0.0, np.inf]])
def test_values_without_a_known_range_are_refused(values: list[float], tmp_path: Path) -> None:
    image = saved(Image.fromarray(np.array([values], dtype=np.float32)), "TIFF")
    with pytest.raises(UserError, match=r"train.csv line 2: image 0.img cannot be read"):
        read(folder_with(tmp_path / "d", image))


def test_plain_images_are_kept_as_they_are_and_keep_their_fingerprint(tmp_path: Path) -> None:
    grey = saved(Image.fromarray(EIGHT.astype(np.uint8)))
    task = read(folder_with(tmp_path / "d", jpeg(), grey))
    stored = task._splits["train"].data["input"].combine_chunks()
    assert [image["bytes"].as_py() for image in stored] == [jpeg(), grey]
    assert not [note for note in task.card.notes if "converted" in note]
    # of one 8-bit image and the same as 16 bits, the second is another data set
    deep = read(folder_with(tmp_path / "e/d", jpeg(), png_of_16_bits(RAMP, 0)))
    assert deep.card.fingerprint != task.card.fingerprint


def test_an_encoder_scales_an_image_that_it_is_handed(tmp_path: Path) -> None:
    prepared = square(Image.fromarray(RAMP), 4)
    assert prepared.max() == 255
    assert len(prepared.unique()) > 6


def test_images_outside_the_folder_are_read_only_if_the_user_says_so(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "d", jpeg())
    put(tmp_path / "secret.jpg", jpeg(1))
    (folder / "link.jpg").symlink_to(tmp_path / "secret.jpg")
    for path in ("../secret.jpg", str(tmp_path / "secret.jpg"), "link.jpg", "a/../../secret.jpg"):
        put(folder / "train.csv", f"image,labels\n0.img,a\n{path},a\n")
        with pytest.raises(UserError, match=r"line 3: image .* is outside the data folder"):
            read(folder)
    (folder / "a").mkdir()
    assert read(folder, allow_outside=True).card.rows == {"train": 2}


def test_pipes_and_devices_are_never_opened(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "d", jpeg())
    os.mkfifo(folder / "pipe.jpg")
    for path in ("pipe.jpg", "/dev/zero", ".", "zero\0byte", f"{'a' * 300}.jpg", "a" * 253):
        put(folder / "train.csv", f"image,labels\n{path},a\n")
        with pytest.raises(UserError, match="line 2: image"):
            read(folder, allow_outside=True)
    os.mkfifo(folder / "test.csv")
    with pytest.raises(UserError, match=r"test\.csv: not a plain file"):
        read(folder)
