"""Inputs of a split and the views taken of them: plain (as is), weak, strong.

Views of small images, vectors and token ids are drawn for a whole batch at once, with parameters of
their own for each row. Every draw comes from the generator that is handed in: torchvision's
functions are used for large images, its random transforms are not, as they draw from a global one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

View = Callable[[Tensor, Generator], Tensor]
RowNumbers = npt.NDArray[np.int64]

PATCHES = 4
"""Of an image, in its "-patches" views."""


class SplitInputs(Protocol):
    """What training asks of a split's inputs, wherever they are kept."""

    views: dict[str, View]
    on_the_fly: bool  # slow to ask for, and safe to ask for from several threads

    def __len__(self) -> int: ...

    def view(self, rows: RowNumbers, view: str, generator: Generator) -> Tensor:
        """The rows as a network takes them, seen through one view."""
        ...

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> SplitInputs:
        """The same rows with every vector put through `scale` before any view is taken."""
        ...


class Inputs:
    """One split in memory: N × C × H × W uint8 images, N × T token ids, or N × D float vectors."""

    on_the_fly = False

    def __init__(self, values: Tensor, views: dict[str, View]):
        self.values = values
        self.views = views

    def __len__(self) -> int:
        return len(self.values)

    def view(self, rows: RowNumbers, view: str, generator: Generator) -> Tensor:
        return self.views[view](self.values[torch.from_numpy(rows)], generator)

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> Inputs:
        return Inputs(scale(self.values), self.views)


class StoredInputs:
    """One split too large for memory: rows are read, decoded and prepared when asked for."""

    on_the_fly = True

    def __init__(
        self,
        column: Any,
        prepare: Callable[[Sequence[Any]], Tensor],
        views: dict[str, View],
    ):
        self.column = column
        self.prepare = prepare
        self.views = views

    def __len__(self) -> int:
        return len(self.column)

    def view(self, rows: RowNumbers, view: str, generator: Generator) -> Tensor:
        if not len(rows):  # the shape of nothing is known from something
            return self.view(np.zeros(1, dtype=np.int64), view, generator)[:0]
        return self.views[view](self.prepare([self.column[int(row)] for row in rows]), generator)

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> StoredInputs:
        return StoredInputs(self.column, lambda raws: scale(self.prepare(raws)), self.views)


class SomeRows:
    """Some rows of a split, as a split of their own."""

    def __init__(self, whole: SplitInputs, rows: RowNumbers):
        self.whole = whole
        self.rows = rows
        self.views = whole.views
        self.on_the_fly = whole.on_the_fly

    def __len__(self) -> int:
        return len(self.rows)

    def view(self, rows: RowNumbers, view: str, generator: Generator) -> Tensor:
        return self.whole.view(self.rows[rows], view, generator)

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> SomeRows:
        return SomeRows(self.whole.scaled(scale), self.rows)


class BackTranslated:
    """Texts with their back-translations: the strong view is of the one or the other, half of the
    time each."""

    def __init__(self, inputs: SplitInputs, translated: SplitInputs):
        self.inputs = inputs
        self.translated = translated
        self.views = inputs.views
        self.on_the_fly = inputs.on_the_fly

    def __len__(self) -> int:
        return len(self.inputs)

    def view(self, rows: RowNumbers, view: str, generator: Generator) -> Tensor:
        seen = self.inputs.view(rows, view, generator)
        if view != "strong":
            return seen
        other = self.translated.view(rows, view, generator)
        chosen = torch.rand(len(seen), generator=generator) < 0.5
        return torch.where(chosen.view(-1, *[1] * (seen.ndim - 1)), other, seen)

    def scaled(self, scale: Callable[[Tensor], Tensor]) -> BackTranslated:
        return BackTranslated(self.inputs.scaled(scale), self.translated.scaled(scale))


def image_views(flips: bool) -> dict[str, View]:
    """Views of small B × C × H × W images, as floats in 0..1; mirrored where labels stay."""
    mirror: View = _mirror if flips else _plain
    views: dict[str, View] = {
        "plain": lambda images, generator: _floats(images),
        "weak": lambda images, generator: _shift(mirror(_floats(images), generator), generator),
        "strong": lambda images, generator: _strong(mirror(_floats(images), generator), generator),
    }
    return views | {f"{name}-patches": _patched(view) for name, view in views.items()}


def natural_views(flips: bool) -> dict[str, View]:
    """Views of photographs, B × 3 × S × S uint8 in and out: weak mirrors, strong mirrors, applies
    RandAugment and cuts out."""
    from ssmlbench.inputs.randaugment import randaugment

    weak: View = _mirror if flips else _plain

    def strong(images: Tensor, generator: Generator) -> Tensor:
        return randaugment(weak(images, generator), generator)

    views: dict[str, View] = {"plain": _plain, "weak": weak, "strong": strong}
    return views | {f"{name}-patches": _patched(view) for name, view in views.items()}


def plain_views() -> dict[str, View]:
    """Three views that are all the row itself."""
    return {"plain": _plain, "weak": _plain, "strong": _plain}


def text_views(
    pad: int, special: Sequence[int] = (), dropout: float = 0.1, swap: float = 0.1
) -> dict[str, View]:
    """Views of B × T padded token ids: weak is as is; strong swaps neighbours and drops tokens."""
    kept_ids = torch.tensor(sorted({*special, pad}))

    def strong(ids: Tensor, generator: Generator) -> Tensor:
        ids = _swap_neighbours(ids, kept_ids, swap, generator)
        return _drop_tokens(ids, kept_ids, pad, dropout, generator)

    return {"plain": _plain, "weak": _plain, "strong": strong}


def vector_views() -> dict[str, View]:
    """Views of B × D vectors: weak is as is; strong adds Gaussian noise and drops features."""
    return {"plain": _plain, "weak": _plain, "strong": noise_and_dropout}


def noise_and_dropout(vectors: Tensor, generator: Generator, noise: float = 0.1) -> Tensor:
    """Noise of a tenth of the row's own spread, whatever scale it is in, then feature dropout."""
    spread = vectors.std(dim=1, keepdim=True, correction=0)
    noisy = torch.randn(vectors.shape, generator=generator).mul_(noise * spread).add_(vectors)
    return feature_dropout(noisy, generator)


def feature_dropout(vectors: Tensor, generator: Generator, dropout: float = 0.5) -> Tensor:
    """Feature dropout, in place: what it keeps of the B × D is enlarged, so that a sum over
    features is on average that of the row."""
    rows, columns = vectors.shape
    # Most of the time goes into drawing: a random 64-bit word serves four features.
    words = torch.empty((rows, -(-columns // 4)), dtype=torch.int64).random_(generator=generator)
    numbers = words.view(torch.int16)[:, :columns] & 0x7FFF  # a word's sign bit is never set
    return vectors.mul_(numbers >= round(dropout * 2**15)).div_(1 - dropout)


def _patched(view: View) -> View:
    """The view, cut in 2 × 2 patches that are each resized to the whole: B rows become 4B.

    Row i's patches stand at 4i … 4i + 3.
    """

    def patches(images: Tensor, generator: Generator) -> Tensor:
        seen = view(images, generator)
        height, width = seen.shape[2:]
        cut = [
            half
            for band in (seen[:, :, : height // 2], seen[:, :, height - height // 2 :])
            for half in (band[..., : width // 2], band[..., width - width // 2 :])
        ]
        together = torch.stack(cut, dim=1).flatten(0, 1)
        size = (height, width)
        large = F.interpolate(together.float(), size=size, mode="bilinear", align_corners=False)
        return large.round_().to(seen.dtype) if seen.dtype == torch.uint8 else large

    return patches


def _plain(inputs: Tensor, generator: Generator) -> Tensor:
    return inputs


def _floats(images: Tensor) -> Tensor:
    return images.float() / 255 if images.dtype == torch.uint8 else images


def _swap_neighbours(ids: Tensor, kept: Tensor, rate: float, generator: Generator) -> Tensor:
    """Exchange a token and the next with this probability; each token takes part once."""
    # Pairs start at 0 or at 1, so that every border between two tokens can be crossed.
    start = int(torch.randint(0, 2, (1,), generator=generator))
    width = (ids.shape[1] - start) // 2 * 2
    if width < 2:
        return ids
    pairs = ids[:, start : start + width].unflatten(1, (-1, 2))
    chosen = torch.rand(pairs.shape[:2], generator=generator) < rate
    chosen &= ~torch.isin(pairs, kept.to(ids.dtype)).any(2)
    swapped = ids.clone()
    swapped[:, start : start + width] = torch.where(
        chosen[..., None], pairs.flip(2), pairs
    ).flatten(1)
    return swapped


def _drop_tokens(ids: Tensor, kept: Tensor, pad: int, rate: float, generator: Generator) -> Tensor:
    """Leave each token out with this probability and close the gaps; a row keeps one at least."""
    ordinary = ~torch.isin(ids, kept.to(ids.dtype))
    draws = torch.rand(ids.shape, generator=generator)
    # The token with the largest draw stays, so that no text is emptied.
    stays = draws >= draws.masked_fill(~ordinary, -1).amax(1, keepdim=True)
    gone = ordinary & (draws < rate) & ~stays
    empty = gone | (ids == pad)
    return ids.masked_fill(empty, pad).gather(1, empty.int().argsort(dim=1, stable=True))


def _mirror(images: Tensor, generator: Generator) -> Tensor:
    chosen = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(chosen[:, None, None, None], images.flip(3), images)


def _shift(images: Tensor, generator: Generator) -> Tensor:
    """Each image by -1, 0 or 1 pixel along each axis, filled with black."""
    batch, channels, height, width = images.shape
    padded = F.pad(images, (1, 1, 1, 1))
    top, left = torch.randint(0, 3, (2, batch, 1), generator=generator)
    rows = (top + torch.arange(height))[:, None, :, None]
    columns = (left + torch.arange(width))[:, None, None, :]
    image = torch.arange(batch)[:, None, None, None]
    return padded[image, torch.arange(channels)[None, :, None, None], rows, columns]


def _strong(images: Tensor, generator: Generator) -> Tensor:
    """Shift, re-light, add noise and cut out."""
    lit = _relight(_shift(images, generator), generator)
    return _cutout(lit, generator).clamp_(0.0, 1.0)


def _uniform(low: float, high: float, shape: tuple[int, ...], generator: Generator) -> Tensor:
    return torch.rand(shape, generator=generator) * (high - low) + low


def _relight(images: Tensor, generator: Generator) -> Tensor:
    """Contrast, brightness and Gaussian noise."""
    shape = (len(images), 1, 1, 1)
    contrast = _uniform(0.6, 1.4, shape, generator)
    brightness = _uniform(-0.1, 0.1, shape, generator)
    level = _uniform(0.0, 0.1, shape, generator)
    return images * contrast + brightness + level * torch.randn(images.shape, generator=generator)


def _cutout(images: Tensor, generator: Generator) -> Tensor:
    """Blacken one square of 0.4 of the shorter side, anywhere."""
    batch, _, height, width = images.shape
    size = round(0.4 * min(height, width))
    top = torch.randint(1 - size, height, (batch, 1), generator=generator)
    left = torch.randint(1 - size, width, (batch, 1), generator=generator)
    rows, columns = torch.arange(height) - top, torch.arange(width) - left
    inside = ((rows >= 0) & (rows < size))[:, :, None] & ((columns >= 0) & (columns < size))[
        :, None
    ]
    return images.masked_fill(inside[:, None], 0.0)
