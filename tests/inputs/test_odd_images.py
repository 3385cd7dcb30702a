"""Files that cameras, scanners and broken downloads leave: decoded as a plain reader does, or refused."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps
from PIL.ExifTags import Base

from ssmlbench.data.images import as_stored
from ssmlbench.inputs.decoding import Shortcuts, SquareDecoder

SIZE = 32


def photograph(width: int = 150, height: int = 100) -> Image.Image:
    coarse = np.random.default_rng(0).integers(0, 256, (10, 15, 3)).astype(np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def file_of(image: Image.Image, kind: str = "JPEG", **how: Any) -> bytes:
    content = io.BytesIO()
    image.save(content, kind, **how)
    return content.getvalue()


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[Base.Orientation] = orientation
    return exif


def with_broken_exif() -> bytes:
    content = file_of(photograph(), exif=turned(6))
    place = content.index(b"Exif\0\0") + 6
    return content[:place] + b"??" + content[place + 2 :]


ODD = {
    "grey": file_of(photograph().convert("L")),
    "grey and turned": file_of(photograph().convert("L"), exif=turned(6)),
    "CMYK": file_of(photograph().convert("CMYK")),
    "progressive": file_of(photograph(), progressive=True),
    "progressive and turned": file_of(photograph(), progressive=True, exif=turned(8)),
    "an orientation that does not exist": file_of(photograph(), exif=turned(99)),
    "EXIF that is broken": with_broken_exif(),
    "colours at full resolution": file_of(photograph(), subsampling=0),
    "one pixel": file_of(photograph(1, 1)),
    "one grey pixel": file_of(photograph(1, 1).convert("L")),
    "a line": file_of(photograph(5000, 2)),
    "a column": file_of(photograph(1, 4000)),
    "bytes after its end": file_of(photograph()) + b"more" * 50,
    "two pictures": file_of(photograph(), "MPO", save_all=True, append_images=[photograph()]),
    "16-bit grey": file_of(
        Image.fromarray(np.arange(2400, dtype=np.uint16).reshape(40, 60)), "PNG"
    ),
}


@pytest.mark.parametrize("way", ["bilinear", "bicubic"])
@pytest.mark.parametrize("name", ODD)
def test_odd_files_have_the_pixels_of_a_plain_reader(name: str, way: str) -> None:
    stored, _ = as_stored(ODD[name])
    with Image.open(io.BytesIO(stored)) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    expected = np.asarray(upright.resize((SIZE, SIZE), Image.Resampling[way.upper()]))
    found, fast, near = (
        SquareDecoder([stored], SIZE, way, quick).decode(np.arange(1))[0].transpose(1, 2, 0)  # type: ignore[arg-type]
        for quick in (Shortcuts(), Shortcuts(fast_resize=True), Shortcuts(scaled_decoding=True))
    )
    assert np.array_equal(found, expected)
    assert np.abs(fast.astype(int) - expected).max() <= 1  # levels of 256
    assert np.abs(near.astype(int) - expected).mean() < 4


@pytest.mark.parametrize("left", [0, 3, 300, -50, -2])
def test_files_that_were_cut_off_are_refused_when_they_are_prepared(left: int) -> None:
    with pytest.raises(OSError, match=r"cannot identify|[Tt]runcated"):
        as_stored(file_of(photograph())[:left])
