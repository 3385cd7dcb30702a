"""Images of every mode as 8-bit grey or RGB, by one rule for each mode.

Files that are 8-bit grey or RGB already are kept as they are; docs/datasets.md says what is done with
the others.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

CHECKED_PIXELS = 64
"""Images are decoded to about this size, to see that they can be: a third of the cost for JPEG."""
WHITE = (255, 255, 255, 255)
SIXTEEN_BITS = 65535
SCALED, WHITE_IS_ZERO = "ssmlbench: scaled transparency", "ssmlbench: white is zero"
TWELVE_BITS = "ssmlbench: 12 bits"
"""Marks among the facts that Pillow has about a file."""
PHOTOMETRIC, BITS, PLANES = 262, 258, 284
"""Tags of a TIFF file: what its numbers mean (0: zero is white), their bits, 2 for colours in planes."""
MANY_PIXELS, VALUES_A_BYTE = 2**25, 800
"""A larger image with more values for each byte of its file takes gigabytes to decode."""
STRIP_PIXELS = 2**22
"""Large images are converted so many pixels at a time."""


def as_stored(content: bytes) -> tuple[bytes, str]:
    """The file of an image as it is stored, and what was converted: "" if nothing was.

    Raise what Pillow raises for a file that cannot be decoded; a ValueError for values that have no
    fixed range.
    """
    with undecoded(content) as image:
        converted = conversion(image)
        if not converted:
            image.draft(image.mode, (CHECKED_PIXELS, CHECKED_PIXELS))
            image.load()  # a header alone does not show a file that was cut off
            return content, ""
        image.load()
        return png(eight_bit(upright(image))), converted


@contextmanager
def undecoded(content: bytes) -> Iterator[Image]:
    """An image of a user before it is decoded; a ValueError for one that Pillow would not read as meant."""
    from PIL import Image, UnidentifiedImageError

    try:
        found = Image.open(io.BytesIO(content))
    except UnidentifiedImageError:  # its text has an address in memory
        raise OSError("cannot identify it: no image, or of an unknown format") from None
    with found as image:
        if image.format == "EPS":
            raise ValueError("it is a PostScript program; save it as PNG")
        pixels = image.width * image.height
        values = pixels * len(image.getbands())
        if pixels > MANY_PIXELS and values > VALUES_A_BYTE * len(content):
            raise ValueError(
                f"{image.width:,} × {image.height:,} pixels in {len(content):,} bytes; is it a "
                "decompression bomb?"
            )
        keep_levels(image)
        yield image


def conversion(image: Image) -> str:
    """The conversion of an image, in words for the card; "" for 8-bit grey or RGB."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        grey = "12-bit grey" if TWELVE_BITS in image.info else "16-bit grey"
        grey = {"I": "32-bit grey", "F": "float grey"}.get(image.mode, grey)
        grey += ", 0 is white" if WHITE_IS_ZERO in image.info else ""
        return f"{grey}, with a transparent level" if "transparency" in image.info else grey
    if _has_alpha(image):
        return f"alpha, {image.info[SCALED]}" if SCALED in image.info else "alpha"
    if image.mode in ("L", "RGB"):
        return ""
    return {"1": "black and white", "P": "palette"}.get(image.mode, image.mode)


def keep_levels(image: Image) -> None:
    """Keep what Pillow forgets about the levels of grey in a file. Called before the image is loaded.

    The transparent level of a PNG file of 2 or 4 bits gets the scale of its pixels, and so does a
    transparent colour of 16 bits. Of a TIFF file, Pillow turns 8 bits around if zero is white, and no
    others: `eight_bit` does; and of more than 8 bits in planes, it reads bytes as colours.
    """
    level, bits = image.info.get("transparency"), {"L;2": 2, "L;4": 4}
    tiles = getattr(image, "tile", ()) if image.format == "PNG" else ()
    stored = tiles[0][3] if tiles else None
    if isinstance(level, int) and isinstance(stored, str) and stored in bits:
        image.info["transparency"] = level * 255 // (2 ** bits[stored] - 1)
        image.info[SCALED] = "of few levels of grey"
    if isinstance(level, tuple) and stored == "RGB;16B":
        image.info["transparency"] = tuple(value >> 8 for value in level)
        image.info[SCALED] = "of a colour of 16 bits"
    tags = getattr(image, "tag_v2", {})
    if tags.get(PHOTOMETRIC) == 0:
        image.info[WHITE_IS_ZERO] = True
    if tags.get(BITS) == (12,):
        image.info[TWELVE_BITS] = True
    if tags.get(PLANES) == 2 and max(tags.get(BITS, (8,))) > 8 and len(image.getbands()) > 1:
        raise ValueError(
            "its colours of 16 bits are in planes; save it as PNG, or as TIFF in one plane"
        )


def _has_alpha(image: Image) -> bool:
    return image.mode[-1] in "Aa" or "transparency" in image.info


def eight_bit(image: Image) -> Image:
    """The image as 8-bit grey or RGB.

    Grey of 16 bits is scaled by 255 / 65535, of 12 bits by 255 / 4095, and 32-bit grey as 16-bit if it is
    within that range; floats in 0..1 are scaled by 255. What is transparent is white.
    """
    from PIL import Image

    if not conversion(image):
        return image
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        values = np.asarray(image)
        top = 4095.0 if TWELVE_BITS in image.info else float(SIXTEEN_BITS)
        top = 1.0 if image.mode == "F" else top
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= top):
            raise ValueError(
                f"{values.min():g}..{values.max():g} are its values, expected 0..{top:g}; save it "
                "with 8 or 16 bits"
            )
        grey = np.empty(values.shape, dtype=np.uint8)
        for start, end in _strips(image):
            part = values[start:end].astype(np.float64)
            part = top - part if WHITE_IS_ZERO in image.info else part
            grey[start:end] = np.round(part * (255 / top)).astype(np.uint8)
        if (level := image.info.get("transparency")) is not None:
            grey[np.asarray(image) == level] = 255
        return Image.fromarray(grey)
    if _has_alpha(image):
        plain = Image.new("RGB", image.size)
        for start, end in _strips(image):
            strip = image.crop((0, start, image.width, end))
            coloured = strip.convert("LA" if image.mode == "La" else image.mode).convert("RGBA")
            white = Image.new("RGBA", coloured.size, WHITE)
            plain.paste(Image.alpha_composite(white, coloured).convert("RGB"), (0, start))
        return plain
    return image.convert("L" if image.mode == "1" else "RGB")


def _strips(image: Image) -> Iterator[tuple[int, int]]:
    """The first row and the end of each part that is converted at once."""
    rows = max(1, STRIP_PIXELS // image.width)
    return ((start, min(start + rows, image.height)) for start in range(0, image.height, rows))


def opened(content: bytes, least: int | None = None) -> Image:
    """A stored image file, decoded, and turned as its EXIF orientation says.

    least: pixels that suffice for both sides. JPEG files are then decoded at the smallest of their own
    scales that has them; None: as they are.
    """
    from PIL import Image

    image = Image.open(io.BytesIO(content))
    if least is not None:
        image.draft(image.mode, (least, least))
    # Decoding in one piece takes a tenth less time.
    image.decodermaxblock = max(image.decodermaxblock, len(content))
    image.load()
    return upright(image)


def upright(image: Image) -> Image:
    """The image, turned as its EXIF orientation says; before `eight_bit`, which may lose that."""
    from PIL import ImageOps
    from PIL.ExifTags import Base

    if image.getexif().get(Base.Orientation) is None:
        return image
    return ImageOps.exif_transpose(image)


def squashed(
    image: Image, size: int, interpolation: str = "bilinear", fast: bool = False
) -> NDArray[np.uint8]:
    """An image of any mode and shape as size × size × 3; the aspect ratio is not kept.

    interpolation: "bilinear", "bicubic" or another of Pillow's, in lower case.
    fast: by PyTorch's filter for bytes, if it has this interpolation: a third of the time, and within
    one level of 256.
    """
    if fast and interpolation in ("bilinear", "bicubic"):
        return _quickly_squashed(image, size, interpolation)
    from PIL import Image

    square = eight_bit(image).resize((size, size), Image.Resampling[interpolation.upper()])
    return np.asarray(square if square.mode == "RGB" else square.convert("RGB"))


def _quickly_squashed(image: Image, size: int, interpolation: str) -> NDArray[np.uint8]:
    from torch.nn.functional import interpolate

    pixels = _pixels(eight_bit(image)).permute(2, 0, 1)[None]
    square = interpolate(pixels, (size, size), mode=interpolation, antialias=True)[0, :3]
    return square.permute(1, 2, 0).expand(-1, -1, 3).numpy()


def _pixels(image: Image) -> Tensor:
    """An 8-bit image as H × W × 1 or 3; × 4, the last of no meaning, where Pillow shares its memory.

    Copying the pixels out of Pillow takes as long as squashing them. PyTorch's filter treats each
    channel by itself, and four are quicker than three.
    """
    import torch

    if image.mode == "RGB" and hasattr(image, "__arrow_c_array__"):
        import pyarrow

        with suppress(ValueError):  # a large image is in several blocks of memory
            shared = torch.utils.dlpack.from_dlpack(pyarrow.array(image).flatten())
            return shared.reshape(image.height, image.width, 4)
    copied = torch.from_numpy(np.array(image))  # Pillow's memory is read-only
    return copied.reshape(image.height, image.width, -1)


def png(image: Image) -> bytes:
    """The image as the bytes of a PNG file, which loses nothing."""
    content = io.BytesIO()
    image.save(content, format="PNG")
    return content.getvalue()


def png_of_array(array: NDArray[Any]) -> bytes:
    """An array (H × W or H × W × 3, uint8) as the bytes of a PNG file."""
    from PIL import Image

    if array.dtype != np.uint8:
        raise ValueError(f"an array of {array.dtype}, expected uint8")
    return png(Image.fromarray(array))
