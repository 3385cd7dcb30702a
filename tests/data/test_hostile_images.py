"""Image files that Pillow reads as other pixels, runs as programs, or takes gigabytes for."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ssmlbench.core.errors import UserError
from ssmlbench.data import images
from ssmlbench.data.images import as_stored, eight_bit
from ssmlbench.data.plain_inputs import read_image

LEVELS = np.random.default_rng(7).integers(0, 65536, (5, 4, 3)).astype(np.uint16)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, depth: int, colour: int, lines: bytes, more: bytes = b"") -> bytes:
    """A PNG file, written by hand. lines: each after a zero."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(lines))
    return b"\x89PNG\r\n\x1a\n" + head + more + pixels + chunk(b"IEND", b"")


def tiff(width: int, height: int, bits: int, colours: int, planes: int, data: bytes) -> bytes:
    """A TIFF file of one strip a plane, written by hand."""
    strips = colours if planes == 2 else 1
    start = 8 + 2 + 9 * 12 + 4
    lists = start + 2 * colours + 8 * strips
    size = len(data) // strips
    entries = [
        (256, 3, 1, width),
        (257, 3, 1, height),
        (258, 3, colours, start if colours > 2 else bits),
        (259, 3, 1, 1),
        (262, 3, 1, 2 if colours == 3 else 1),
        (273, 4, strips, start + 2 * colours if strips > 1 else lists),
        (277, 3, 1, colours),
        (279, 4, strips, start + 2 * colours + 4 * strips if strips > 1 else size),
        (284, 3, 1, planes),
    ]
    directory = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    places = [lists + k * size for k in range(strips)] + [size] * strips
    packed = struct.pack(f"<{colours}H{2 * strips}I", *[bits] * colours, *places)
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + directory + b"\0" * 4 + packed + data


def read(content: bytes, file: Path) -> np.ndarray:
    """The pixels as prepared, which `predict` reads alike."""
    stored = np.asarray(Image.open(io.BytesIO(as_stored(content)[0])))
    file.write_bytes(content)
    assert np.array_equal(read_image(file), stored)
    return stored


def test_a_transparent_colour_of_16_bits_is_white(tmp_path: Path) -> None:
    lines = b"".join(b"\0" + row.astype(">u2").tobytes() for row in LEVELS)
    colour = struct.pack(">HHH", *LEVELS[2, 1].tolist())
    pixels = read(png(4, 5, 16, 2, lines, chunk(b"tRNS", colour)), tmp_path / "a.png")
    expected = LEVELS >> 8
    expected[2, 1] = 255
    assert np.array_equal(pixels, expected)


def test_grey_of_12_bits_has_its_own_white(tmp_path: Path) -> None:
    content = tiff(4, 1, 12, 1, 1, bytes([0x12, 0x3F, 0xFF, 0x00, 0x08, 0x00]))
    levels = np.array([[0x123, 0xFFF, 0x000, 0x800]])
    assert np.array_equal(read(content, tmp_path / "a.tif"), np.round(levels * 255 / 4095))
    assert as_stored(content)[1] == "12-bit grey"


def test_colours_in_planes_are_read_of_8_bits_and_refused_of_16(tmp_path: Path) -> None:
    planes = LEVELS.transpose(2, 0, 1)
    eight = tiff(4, 5, 8, 3, 2, (planes >> 8).astype(np.uint8).tobytes())
    assert np.array_equal(read(eight, tmp_path / "a.tif"), LEVELS >> 8)
    with pytest.raises(ValueError, match="are in planes"):
        as_stored(tiff(4, 5, 16, 3, 2, planes.astype("<u2").tobytes()))


PROGRAM = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nquit\n"
BOMB = png(8192, 8192, 1, 3, b"\0" * 8192 * 1025, chunk(b"PLTE", b"\0" * 6) + chunk(b"tRNS", b"\0"))


@pytest.mark.parametrize(
    ("content", "why"), [(PROGRAM, "a PostScript program"), (BOMB, "a decompression bomb")]
)
def test_programs_and_bombs_are_refused(content: bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=why):
        as_stored(content)
    (tmp_path / "a.jpg").write_bytes(content)
    with pytest.raises(UserError, match=why):
        read_image(tmp_path / "a.jpg")


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "P", "I;16", "I", "F"])
def test_pixels_do_not_depend_on_how_many_are_converted_at_once(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = LEVELS[:, :, 0]
    if mode in ("I;16", "I", "F"):
        kinds = {"I;16": values, "I": values.astype(np.int32), "F": values / np.float32(65535)}
        image = Image.fromarray(kinds[mode])
    else:
        coloured = np.dstack([LEVELS, values]).astype(np.uint8)
        image = Image.fromarray(coloured).convert("LA" if mode == "PA" else mode).convert(mode)
        image.info.update({"transparency": 3} if mode == "P" else {})
    whole = np.asarray(eight_bit(image))
    monkeypatch.setattr(images, "STRIP_PIXELS", 9)
    assert np.array_equal(np.asarray(eight_bit(image)), whole)
