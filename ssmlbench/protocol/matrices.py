"""Checked views of the matrices that metrics and decision rules work on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

BLOCK = 1 << 21
"""Entries of a block: of scores in single precision 8 MB."""
IN_CACHE = 1 << 17
"""Entries of a block of rows that is read several times: it stays in a core's own cache."""


def as_scores(scores: ArrayLike) -> NDArray[Any]:
    """The scores (N × K), checked. Their type is kept: a narrower one would create ties."""
    s = _matrix("scores", scores)
    if s.dtype.kind not in "fiu" or np.isnan(s.min()):
        raise ValueError(f"scores must be real numbers with no NaN among them, got {s.dtype}")
    return s


def as_labels(name: str, values: ArrayLike, like: NDArray[Any]) -> NDArray[np.bool_]:
    """A matrix of 0 and 1 with the shape of `like`, as booleans."""
    v = _matrix(name, values)
    if v.shape != like.shape:
        raise ValueError(f"{name} has shape {v.shape}, scores have {like.shape}")
    # -1 marks an unknown label in observed matrices: it must not pass for a positive here
    if v.dtype != np.bool_ and not ((v == 0) | (v == 1)).all():
        raise ValueError(f"{name} must hold only 0 and 1")
    return v.astype(np.bool_, copy=False)


def per_label(name: str, values: ArrayLike, like: NDArray[Any]) -> NDArray[Any]:
    """A vector with one value for each label of `like`."""
    v = np.asarray(values)
    if v.shape != like.shape[1:]:
        raise ValueError(f"{name} has shape {v.shape}, expected one per label: {like.shape[1:]}")
    return v


def count(mask: NDArray[np.bool_], axis: int) -> NDArray[np.int64]:
    """The number of True along an axis; summed in bytes as far as they reach, which is up to 255.

    NumPy's default, sums of 64 bits, takes two to four times as long.
    """
    if mask.ndim == 1:
        return np.asarray(np.count_nonzero(mask), dtype=np.int64)
    ones, most = mask.view(np.uint8), np.iinfo(np.uint8).max
    counts: NDArray[np.int64]
    if axis == 1:
        # `einsum` sums in the type of its input, and short rows in a third of the time of `sum`
        whole_rows = mask.shape[1] <= most
        summed = np.einsum("ij->i", ones) if whole_rows else ones.sum(axis=1, dtype=np.int32)
        counts = summed.astype(np.int64)
        return counts
    # 255 parts of the rows are added, each in one long stretch of memory
    whole = len(ones) // most * most
    parts = ones[:whole].reshape(most, whole // most * mask.shape[1]).sum(axis=0, dtype=np.uint8)
    counts = parts.reshape(-1, mask.shape[1]).sum(axis=0, dtype=np.int64)
    counts += ones[whole:].sum(axis=0, dtype=np.uint8)
    return counts


def blocks(size: int, other: int, entries: int | None = None) -> Iterator[slice]:
    """Cut an axis of `size` entries so that a block has BLOCK entries. other: of the other axis.

    What is computed block by block needs memory for a block, and none for a copy of a whole matrix.
    """
    step = max(1, (entries or BLOCK) // max(other, 1))
    for start in range(0, size, step):
        yield slice(start, min(start + step, size))


def by_label(rows: NDArray[Any]) -> NDArray[Any]:
    """A K × N copy, by blocks that fit the cache: half the time of one strided copy."""
    columns = np.empty(rows.shape[::-1], rows.dtype)
    for start in range(0, len(rows), 512):
        columns[:, start : start + 512] = rows[start : start + 512].T
    return columns


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise a ValueError that lists the choices unless the value is one of them."""
    if value not in allowed:
        raise ValueError(f"unknown {name} {value!r}; choose one of {', '.join(allowed)}")


def _matrix(name: str, values: ArrayLike) -> NDArray[Any]:
    v = np.asarray(values)
    if v.ndim != 2 or v.size == 0:
        raise ValueError(f"{name} must be a non-empty rows × labels matrix, got shape {v.shape}")
    return v
