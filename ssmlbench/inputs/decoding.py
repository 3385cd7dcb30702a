"""Image files → uint8 squares of the training size, a row at a time or many in threads."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ssmlbench.core.prefetch import ahead
from ssmlbench.core.spec import RunSpec
from ssmlbench.data.images import opened, squashed
from ssmlbench.data.task import ImageFiles

Squares = NDArray[np.uint8]

BLOCK_ROWS = 16
"""Rows that a thread decodes at a time."""


@dataclass(frozen=True)
class Shortcuts:
    """What makes decoding quicker, and changes pixels. Without them they are those of `Encoder.prepare`."""

    scaled_decoding: bool = False  # JPEG files at a smaller scale, if that has enough pixels
    fast_resize: bool = False  # by PyTorch's filter, within one level of 256

    @classmethod
    def of(cls, spec: RunSpec) -> Shortcuts:
        """The shortcuts of a run."""
        return cls(spec.scaled_decoding, spec.fast_resize)

    @property
    def key(self) -> dict[str, Any]:
        """The shortcuts in use, as a part of a cache's key."""
        return {name: True for name, used in dataclasses.asdict(self).items() if used}


@dataclass(frozen=True)
class SquareDecoder:
    """Decodes the files of a split to 3 × size × size."""

    files: ImageFiles
    size: int
    interpolation: str = "bilinear"
    shortcuts: Shortcuts = Shortcuts()

    def __len__(self) -> int:
        return len(self.files)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of one row."""
        return 3, self.size, self.size

    @property
    def row_bytes(self) -> int:
        """The size of one decoded row."""
        return 3 * self.size * self.size

    @property
    def key(self) -> dict[str, Any]:
        """Everything that the pixels depend on besides the files: libraries differ in rounding."""
        from PIL import __version__, features

        jpeg = features.version("libjpeg_turbo") or features.version("jpg")
        how: dict[str, Any] = {"size": self.size, "interpolation": self.interpolation}
        how |= {"torch": torch.__version__} if self.shortcuts.fast_resize else {}
        return {**how, **self.shortcuts.key, "pillow": __version__, "jpeg": jpeg}

    def decode(self, rows: NDArray[np.int64], out: Squares | None = None) -> Squares:
        """The rows, n × 3 × S × S, in a new array or in `out`."""
        squares = np.empty((len(rows), *self.shape), dtype=np.uint8) if out is None else out
        least = self.size if self.shortcuts.scaled_decoding else None
        fast = self.shortcuts.fast_resize
        for square, row in zip(squares, rows, strict=True):
            image = opened(self.files[int(row)], least)
            square[...] = squashed(image, self.size, self.interpolation, fast).transpose(2, 0, 1)
        return squares

    def ranges(self, parts: list[tuple[int, int]], workers: int) -> Iterator[Squares]:
        """The rows of each range, in order; threads decode ahead, across the ends of ranges."""
        blocks = [
            (number, begin, min(begin + BLOCK_ROWS, stop))
            for number, (start, stop) in enumerate(parts)
            for begin in range(start, stop, BLOCK_ROWS)
        ]

        begun: dict[int, Squares] = {}

        def make(i: int) -> None:
            number, begin, end = blocks[i]
            start, stop = parts[number]
            empty = np.empty((stop - start, *self.shape), dtype=np.uint8)
            # setdefault is one step: another thread may have begun this part
            squares = begun.setdefault(number, empty)
            self.decode(np.arange(begin, end), out=squares[begin - start : end - start])

        for (number, _, end), _ in zip(blocks, ahead(make, len(blocks), workers), strict=True):
            if end == parts[number][1]:
                yield begun.pop(number)
