"""Views of texts: batches of padded token ids."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from ssmlbench.inputs.views.base import View, identity


def text_views(
    pad: int, special: Sequence[int], dropout: float = 0.1, swap: float = 0.1
) -> dict[str, View]:
    """Views of B × T padded token ids: weak is as is; strong swaps neighbours and drops tokens."""
    kept_ids = torch.tensor(sorted({*special, pad}))

    def strong(ids: Tensor, generator: Generator) -> Tensor:
        ids = _swap_neighbours(ids, kept_ids, swap, generator)
        return _drop_tokens(ids, kept_ids, pad, dropout, generator)

    return {"plain": identity, "weak": identity, "strong": strong}


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
