"""Large matrices of vectors and features that stay on disk: rows are copied when they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ssmlbench.inputs.splits import RowNumbers

MAPPED_BYTES = 192 * 2**20
"""Vectors of a split, or features of a view, stay on disk if they are larger."""


class MappedRows:
    """The rows of one matrix, in pieces that are mapped into memory."""

    def __init__(self, pieces: Sequence[npt.NDArray[Any]]):
        self.pieces = pieces
        self._ends = np.cumsum([len(piece) for piece in pieces])

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def bytes(self) -> int:
        """The size of all rows."""
        return sum(piece.nbytes for piece in self.pieces)

    def take(self, rows: RowNumbers) -> Tensor:
        """A copy of some rows, n × D."""
        first = self.pieces[0]
        taken = np.empty((len(rows), *first.shape[1:]), dtype=first.dtype)
        number = np.searchsorted(self._ends, rows, side="right")
        changes = np.flatnonzero(np.diff(number)) + 1  # rows of one piece are copied together
        bounds = [0, *changes.tolist(), len(rows)] if len(rows) else []
        for start, stop in pairwise(bounds):
            piece = int(number[start])
            begin = int(self._ends[piece - 1]) if piece else 0
            taken[start:stop] = self.pieces[piece][rows[start:stop] - begin]
        return torch.from_numpy(taken)


class MappedFeatures:
    """One view's features on disk; the R draws of a row are consecutive rows.

    It reads like a tensor of N · R × D, or N · R × patches × D.
    """

    def __init__(
        self,
        draws: Sequence[MappedRows],
        patches: int | None = None,
        scale: Callable[[Tensor], Tensor] | None = None,
    ):
        """patches: the rows that belong together, None where each is by itself."""
        self.draws = draws
        self.patches = patches
        self.scale = scale

    def __len__(self) -> int:
        return len(self.draws[0]) // (self.patches or 1) * len(self.draws)

    def index_select(self, dim: int, index: Tensor) -> Tensor:
        """The features of some rows; `dim` is 0."""
        rows, draw = np.divmod(index.numpy(), len(self.draws))
        parts = [self._of_draw(rows[draw == number], d) for number, d in enumerate(self.draws)]
        together = torch.cat(parts)
        if len(parts) > 1:
            place = torch.from_numpy(np.argsort(draw, kind="stable"))
            together = torch.empty_like(together).index_copy_(0, place, together)
        if self.scale is None:
            return together
        return self.scale(together.flatten(0, -2)).view_as(together)

    def _of_draw(self, rows: RowNumbers, draw: MappedRows) -> Tensor:
        if self.patches is None:
            return draw.take(rows)
        numbers = (rows[:, None] * self.patches + np.arange(self.patches)).ravel()
        together: Tensor = draw.take(numbers).unflatten(0, (-1, self.patches))
        return together

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> MappedFeatures:
        """The same rows, with `scale` applied to every vector when it is read."""
        return MappedFeatures(self.draws, self.patches, scale)


def mapped_array(file: Path) -> npt.NDArray[Any]:
    """The array of an .npy file in the machine's byte order, mapped into memory.

    Unlike NumPy's map it keeps no file open: a large split has thousands of files.
    """
    with file.open("rb") as opened:
        np.lib.format.read_magic(opened)
        shape, _, dtype = np.lib.format.read_array_header_1_0(opened)
        start = opened.tell()
    size = int(np.prod(shape)) * dtype.itemsize
    content = torch.from_file(str(file), shared=False, size=start + size, dtype=torch.uint8)
    array: npt.NDArray[Any] = content.numpy()[start:].view(dtype).reshape(shape)
    return array
