"""Passes rows through the encoder: together, or in pieces whose activations are computed again.

A method sees the outputs of the whole batch either way. Pieces need less memory between the forward and
the backward pass. Only batch normalisation differs: its statistics are those of a piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from ssmlbench.core.errors import RunFailed, UserError
from ssmlbench.inputs.encoders import Encoder


class EncoderPass:
    """Runs an encoder over a batch, at most `micro_batch` rows at a time; None: all together."""

    def __init__(self, micro_batch: int | None = None, recomputes: bool = False):
        """recomputes: whether activations inside the encoder's blocks are computed again."""
        self.micro_batch = micro_batch
        self.recomputes = recomputes
        self._last = 0  # rows of the last batch

    def is_whole(self, inputs: Tensor) -> bool:
        """Whether a batch goes through the encoder as it is."""
        self._last = len(inputs)
        return self.micro_batch is None or self._last <= self.micro_batch

    def __call__(self, encoder: nn.Module, inputs: Tensor) -> Tensor:
        """Features of the whole batch, B × D, in the order of its rows.

        A piece has every n-th row: each then holds all pools and views in the batch's proportions,
        and its normalisation statistics are close to the batch's.
        """
        pieces = math.ceil(len(inputs) / self.micro_batch) if self.micro_batch else 1
        if pieces <= 1:  # 0: a pool without rows
            whole: Tensor = encoder(inputs)
            return whole
        return interleaved([_piece(encoder, inputs[i::pieces]) for i in range(pieces)])

    def shrink(self) -> None:
        """Halve the rows that go through the encoder at a time; a RunFailed if it is one row already."""
        rows = min(self.micro_batch or self._last, self._last)
        if rows <= 1:
            raise RunFailed(
                "out of memory with one row at a time in the encoder: it needs a larger device"
            )
        self.micro_batch = math.ceil(rows / 2)


def normalises_batches(network: nn.Module) -> bool:
    """Whether the network has batch normalisation: in training, rows then depend on their batch."""
    return any(isinstance(module, _BatchNorm) for module in network.modules())


def interleaved(parts: Sequence[Tensor]) -> Tensor:
    """The rows of x in order, from x[0::n], x[1::n], …, x[n-1::n]."""
    longest = len(parts[0])
    even = [F.pad(p, (0, 0) * (p.ndim - 1) + (0, longest - len(p))) for p in parts]
    return torch.stack(even, dim=1).flatten(0, 1)[: sum(map(len, parts))]


def _piece(encoder: nn.Module, inputs: Tensor) -> Tensor:
    trained = torch.is_grad_enabled() and any(p.requires_grad for p in encoder.parameters())
    features: Tensor = recomputed(encoder, encoder, inputs) if trained else encoder(inputs)
    return features


def recomputed(call: Callable[..., Any], module: nn.Module, *arguments: Any, **options: Any) -> Any:
    """The outputs of `call`, whose activations are computed again in the backward pass, not kept.

    Random numbers are the same the second time; normalisation statistics count a row once.
    """

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _without_statistics(module)

    return checkpoint(call, *arguments, use_reentrant=False, context_fn=contexts, **options)


@contextmanager
def _without_statistics(module: nn.Module) -> Iterator[None]:
    """Batch normalisation as in training, without an update of its running statistics."""
    norms = [m for m in module.modules() if isinstance(m, _BatchNorm)]
    before = [(norm.momentum, norm._buffers["num_batches_tracked"]) for norm in norms]
    for norm in norms:
        norm.momentum, norm._buffers["num_batches_tracked"] = 0.0, None
    try:
        yield
    finally:
        for norm, (momentum, counter) in zip(norms, before, strict=True):
            norm.momentum, norm._buffers["num_batches_tracked"] = momentum, counter


# ------------------------------------------------------------------------ activation checkpointing


def recompute_blocks(encoder: Encoder) -> None:
    """Keep only the inputs of an encoder's blocks for the backward pass, over the whole batch.

    The loss and its gradients stay those of the whole batch, batch normalisation included.
    """
    blocks = encoder.blocks()
    if not blocks:
        raise UserError(
            "--checkpoint-activations: this encoder is not a stack of blocks; --micro-batch N saves memory "
            "with every encoder"
        )
    for block in blocks:
        _recompute(block)


def _recompute(block: nn.Module) -> None:
    forward = block.forward

    def call(*arguments: Any, **options: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*arguments, **options)
        return recomputed(forward, block, *arguments, **options)

    block.forward = call
