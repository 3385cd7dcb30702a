"""Image files with smooth colours, and an encoder that takes them as small squares."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from ssmlbench.inputs.encoders import EncoderOptions
from ssmlbench.inputs.encoders.small import SmallCnn

SIZE = 16
OPTIONS = EncoderOptions(image_size=SIZE)


class Squares(SmallCnn):
    options = {"image_size": SIZE}


def photograph(number: int, size: tuple[int, int] = (40, 30), **saved: Any) -> bytes:
    """A JPEG file with smooth colours."""
    draw = np.random.default_rng(number)
    coarse = Image.fromarray(draw.integers(0, 256, (5, 6, 3)).astype(np.uint8))
    content = io.BytesIO()
    coarse.resize(size, Image.Resampling.BICUBIC).save(content, format="JPEG", **saved)
    return content.getvalue()
