"""Feature vectors on one scale: columns standardised over the training rows, rows of one length.

The statistics are those of inputs; no label is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
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

    @classmethod
    def of(cls, inputs: SplitInputs) -> Scale:
        """The scale of a split's plain view, in two passes of a chunk at a time."""
        count = max(len(inputs), 1)
        mean = sum(chunk.sum(0) for chunk in _chunks(inputs)) / count
        variance = sum(((chunk - mean) ** 2).sum(0) for chunk in _chunks(inputs)) / count
        deviation = torch.as_tensor(variance).sqrt()
        # Constant columns: divide by 1, so that they become 0.
        return cls(torch.as_tensor(mean), torch.where(deviation > 1e-6, deviation, 1.0))

    def __call__(self, vectors: Tensor) -> Tensor:
        """N × D in, N × D of the same precision out."""
        scaled = torch.empty_like(vectors)
        for part, out in zip(vectors.split(CHUNK_ROWS), scaled.split(CHUNK_ROWS), strict=True):
            columns = (part.double() - self.mean) / self.deviation
            length = torch.linalg.vector_norm(columns, dim=1, keepdim=True)
            out.copy_(columns * (vectors.shape[1] ** 0.5 / length.clamp(min=1e-6)))
        return scaled


def _chunks(inputs: SplitInputs) -> Iterator[Tensor]:
    for start in range(0, len(inputs), CHUNK_ROWS):
        rows = np.arange(start, min(start + CHUNK_ROWS, len(inputs)))
        yield inputs.view(rows, "plain", stream(0, "scale")).double()
