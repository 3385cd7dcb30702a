"""Images of every mode as 8-bit grey or RGB, by one rule for each mode.

Files that are 8-bit grey or RGB already are kept as they are; docs/datasets.md says what is done with
the others.
"""

from __future__ import annotations

import io
from contextlib import suppress
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
"""Marks among the facts that Pillow has about a file."""
PHOTOMETRIC = 262
"""The tag of a TIFF file that says what its numbers mean: 0 if zero is white."""


def as_stored(content: bytes) -> tuple[bytes, str]:
    """The file of an image as it is stored, and what was converted: "" if nothing was.

    Raise what Pillow raises for a file that cannot be decoded; a ValueError for values that have no
    fixed range.
    """
    from PIL import Image

    with Image.open(io.BytesIO(content)) as image:
        keep_levels(image)
        converted = conversion(image)
        if not converted:
            image.draft(image.mode, (CHECKED_PIXELS, CHECKED_PIXELS))
            image.load()  # a header alone does not show a file that was cut off
            return content, ""
        image.load()
        return png(eight_bit(upright(image))), converted


def conversion(image: Image) -> str:
    """The conversion of an image, in words for the card; "" for 8-bit grey or RGB."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        grey = {"I": "32-bit grey", "F": "float grey"}.get(image.mode, "16-bit grey")
        grey += ", 0 is white" if WHITE_IS_ZERO in image.info else ""
        return f"{grey}, with a transparent level" if "transparency" in image.info else grey
    if _has_alpha(image):
        return "alpha, of few levels of grey" if SCALED in image.info else "alpha"
    if image.mode in ("L", "RGB"):
        return ""
    return {"1": "black and white", "P": "palette"}.get(image.mode, image.mode)


def keep_levels(image: Image) -> None:
    """Keep what Pillow forgets about the levels of grey in a file. Called before the image is loaded.

    The transparent level of a PNG file of 2 or 4 bits gets the scale of its pixels. Of a TIFF file,
    Pillow turns 8 bits around if zero is white, and no others: `eight_bit` does.
    """
    level, bits = image.info.get("transparency"), {"L;2": 2, "L;4": 4}
    tiles = getattr(image, "tile", ()) if image.format == "PNG" else ()
    stored = tiles[0][3] if tiles else None
    if isinstance(level, int) and isinstance(stored, str) and stored in bits:
        image.info["transparency"] = level * 255 // (2 ** bits[stored] - 1)
        image.info[SCALED] = True
    if getattr(image, "tag_v2", {}).get(PHOTOMETRIC) == 0:
        image.info[WHITE_IS_ZERO] = True


def _has_alpha(image: Image) -> bool:
    return image.mode[-1] in "Aa" or "transparency" in image.info


def eight_bit(image: Image) -> Image:
    """The image as 8-bit grey or RGB.

    Grey of 16 bits is scaled by 255 / 65535, and so is 32-bit grey within that range; floats in 0..1 are
    scaled by 255. What is transparent is white.
    """
    from PIL import Image

    if not conversion(image):
        return image
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.float64)
        top = 1.0 if image.mode == "F" else float(SIXTEEN_BITS)
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= top):
            raise ValueError(
                f"{values.min():g}..{values.max():g} are its values, expected 0..{top:g}; save it "
                "with 8 or 16 bits"
            )
        if WHITE_IS_ZERO in image.info:
            values = top - values
        grey = np.round(values * (255 / top)).astype(np.uint8)
        if (level := image.info.get("transparency")) is not None:
            grey[np.asarray(image) == level] = 255
        return Image.fromarray(grey)
    if _has_alpha(image):
        coloured = image.convert("LA" if image.mode == "La" else image.mode).convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, WHITE), coloured).convert("RGB")
    return image.convert("L" if image.mode == "1" else "RGB")


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
