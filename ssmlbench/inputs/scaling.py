"""Feature vectors on one scale: columns standardised over the training rows, rows of one length.

Columns can be rotated after that. The statistics are those of inputs; no label is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.fft import dct
from torch import Tensor

from ssmlbench.core.seeds import stream
from ssmlbench.inputs.splits import SplitInputs

CHUNK_ROWS = 4096


@dataclass(frozen=True)
class Scale:
    """Each column to mean 0 and deviation 1, then each row to length √D.

    The start of a projection assumes unit variance; columns or rows of another scale would learn more
    slowly or dominate the rest.
    """

    mean: Tensor
    deviation: Tensor
    signs: Tensor | None = None  # of the rotation; None: columns stay as they are

    @classmethod
    def of(cls, inputs: SplitInputs, rotate: bool = False) -> Scale:
        """The scale of a split's plain view, in two passes of a chunk at a time."""
        count = max(len(inputs), 1)
        mean = sum(chunk.sum(0) for chunk in _chunks(inputs)) / count
        variance = sum(((chunk - mean) ** 2).sum(0) for chunk in _chunks(inputs)) / count
        deviation = torch.as_tensor(variance).sqrt()
        # Constant columns: divide by 1, so that they become 0.
        deviation = torch.where(deviation > 1e-6, deviation, 1.0)
        signs = random_signs(len(deviation)) if rotate else None
        return cls(torch.as_tensor(mean), deviation, signs)

    @property
    def state(self) -> dict[str, Tensor]:
        """The tensors of the scale by name; `Scale(**state)` is equal to it."""
        tensors = {"mean": self.mean, "deviation": self.deviation}
        return tensors if self.signs is None else tensors | {"signs": self.signs}

    def __call__(self, vectors: Tensor) -> Tensor:
        """N × D in, N × D of the same precision out."""
        scaled = torch.empty_like(vectors)
        for part, out in zip(vectors.split(CHUNK_ROWS), scaled.split(CHUNK_ROWS), strict=True):
            columns = (part.double() - self.mean) / self.deviation
            length = torch.linalg.vector_norm(columns, dim=1, keepdim=True)
            columns *= vectors.shape[1] ** 0.5 / length.clamp(min=1e-6)
            out.copy_(columns if self.signs is None else rotated(columns, self.signs))
        return scaled


def random_signs(count: int) -> Tensor:
    """±1, the same in every run."""
    return 2.0 * torch.randint(0, 2, (count,), generator=stream(0, "rotation")) - 1


def rotated(columns: Tensor, signs: Tensor) -> Tensor:
    """A rotation that spreads each column over all: signs, then the orthonormal cosine transform.

    It costs D log D a row, and the numbers of a row do not depend on the other rows in a batch, as
    those of a matrix product may.
    """
    return torch.from_numpy(dct((columns * signs).numpy(), norm="ortho", axis=1))


def _chunks(inputs: SplitInputs) -> Iterator[Tensor]:
    for start in range(0, len(inputs), CHUNK_ROWS):
        rows = np.arange(start, min(start + CHUNK_ROWS, len(inputs)))
        yield inputs.view(rows, "plain", stream(0, "scale")).double()
