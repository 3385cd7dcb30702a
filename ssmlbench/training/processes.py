"""One run in several processes, each with a device of its own: they share the encoder's work.

Every process has the whole batch and takes the same steps. Only the encoder sees a part of the rows:
features are gathered, so that heads and methods compute on the whole batch, and the encoder's gradients
are summed. Every process computes everything else alike; the first one hands in and stores.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from ssmlbench.protocol.judge import JudgeInterface
from ssmlbench.training.encoding import EncoderPass, interleaved


class Processes:
    """The processes of one run, seen from one of them."""

    def __init__(self, rank: int, count: int):
        self.rank = rank
        self.count = count

    @classmethod
    @contextmanager
    def connected(cls, rank: int, count: int, device: str, rendezvous: Path) -> Iterator[Processes]:
        """Connect the processes of a run. rendezvous: a new file that all of them can read.

        After an error the connection stays open until this process ends. Closing it may wait for ever, as
        other processes may be waiting for this one, and the error would never be reported.
        """
        backend = "nccl" if device == "cuda" else "gloo"
        if device == "cuda":
            torch.cuda.set_device(rank)  # or every process would also take memory of the first GPU
        if sys.platform.startswith("linux"):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # they are all on this machine
        store = dist.FileStore(str(rendezvous), count)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=rank, world_size=count)
        yield cls(rank, count)
        dist.destroy_process_group()

    @property
    def leads(self) -> bool:
        """Whether this process hands in and stores."""
        return self.rank == 0

    def device(self, kind: torch.device) -> torch.device:
        """The device of this process: of several GPUs, the one with its number."""
        return torch.device("cuda", self.rank) if kind.type == "cuda" else kind

    def broadcast_answer(self, answer: bool | None, device: torch.device) -> bool:
        """The first process's answer. answer: None in the other processes."""
        value = torch.tensor([int(bool(answer))], device=device)
        dist.broadcast(value, src=0)
        return bool(value.item())

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Give every process the first one's values: other GPUs may round differently."""
        for tensor in tensors:
            spread = zip(tensor.stride(), tensor.shape, strict=True)
            if not tensor.numel() or any(stride == 0 and size > 1 for stride, size in spread):
                continue  # nothing to write, or entries that share their memory
            values = tensor.detach().contiguous().reshape(-1)
            dist.broadcast(values.view(torch.uint8), src=0)  # bytes: every type can be sent
            if not self.leads and values.data_ptr() != tensor.data_ptr():
                tensor.detach().copy_(values.view(tensor.shape))


# ------------------------------------------------------------------------------ the encoder's part


class SharedPass(EncoderPass):
    """Runs an encoder over this process's share of a batch, and gathers the features of all."""

    def __init__(
        self, processes: Processes, micro_batch: int | None = None, recomputes: bool = False
    ):
        super().__init__(micro_batch, recomputes)
        self.processes = processes
        self._epoch_seed, self._passes = 0, 0

    def is_whole(self, inputs: Tensor) -> bool:
        """Never: each process has a share."""
        super().is_whole(inputs)
        return False

    def __call__(self, encoder: nn.Module, inputs: Tensor) -> Tensor:
        """Features of the whole batch, B × D; process r computes every n-th row from the r-th."""
        if not len(inputs):  # a pool without rows: nothing to share
            return super().__call__(encoder, inputs)
        rank, count = self.processes.rank, self.processes.count
        sizes = [len(range(r, len(inputs), count)) for r in range(count)]
        own = inputs[rank::count] if sizes[rank] else inputs[:1]  # one row at least: all take part
        with self._own_random_numbers(encoder, inputs.device):
            features = super().__call__(_with_summed_gradients(encoder), own)
        padded = nn.functional.pad(features, (0, 0, 0, sizes[0] - len(features)))
        parts: Tensor = _Gather.apply(padded, rank, count)  # type: ignore[no-untyped-call]
        return interleaved([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @contextmanager
    def _own_random_numbers(self, encoder: nn.Module, device: torch.device) -> Iterator[None]:
        """A random stream per process inside the block, for dropout; the common stream goes on after it."""
        if not encoder.training:
            yield
            return
        seed = torch.initial_seed()  # set at the start of every epoch
        self._passes = self._passes + 1 if seed == self._epoch_seed else 0
        self._epoch_seed = seed
        text = f"{seed} {self._passes} {self.processes.rank}"
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(int(hashlib.sha256(text.encode()).hexdigest()[:15], 16))
            yield


class _Gather(torch.autograd.Function):
    """The parts of all processes, n × B × D. Each computes the same loss from them."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, rank: int, count: int) -> Tensor:
        ctx.rank = rank
        parts = [torch.empty_like(own) for _ in range(count)]
        dist.all_gather(parts, own.contiguous())
        return torch.stack(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0][ctx.rank], None, None


class _SumOfGradients(torch.autograd.Function):
    """Weights as they are; their gradients, each of some rows, summed over all processes."""

    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)  # a weight that is not used has no gradient anywhere
        return tuple(weight.view_as(weight) for weight in weights)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        given = [gradient for gradient in gradients if gradient is not None]
        if not given:
            return gradients
        flat = torch.cat([gradient.reshape(-1) for gradient in given])
        dist.all_reduce(flat)
        summed = iter(flat.split([gradient.numel() for gradient in given]))
        return tuple(g if g is None else _laid_out_as(g, next(summed)) for g in gradients)


def _laid_out_as(gradient: Tensor, values: Tensor) -> Tensor:
    """Values in the shape and memory layout of a gradient: optimisers read both in memory order."""
    shaped = values.view(gradient.shape)
    return shaped if gradient.is_contiguous() else torch.empty_like(gradient).copy_(shaped)


def _with_summed_gradients(encoder: nn.Module) -> nn.Module:
    trained = {name: p for name, p in encoder.named_parameters() if p.requires_grad}
    if not (torch.is_grad_enabled() and trained):
        return encoder
    summed = _SumOfGradients.apply(*trained.values())  # type: ignore[no-untyped-call]
    return _WithWeights(encoder, dict(zip(trained, summed, strict=True)))


class _WithWeights(nn.Module):
    """An encoder that computes with other tensors in the place of its parameters."""

    def __init__(self, encoder: nn.Module, weights: dict[str, Tensor]):
        super().__init__()
        self.encoder = encoder
        self.weights = weights

    def forward(self, inputs: Tensor) -> Any:
        """The encoder's features."""
        return functional_call(self.encoder, self.weights, (inputs,))


# ------------------------------------------------------------------------------ batch normalisation


class _Sum(torch.autograd.Function):
    """The sum over all processes; a process's gradient is of its own rows, so it is summed too."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        total = own.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        total = gradients[0].clone()
        dist.all_reduce(total)
        return total


def share_statistics(encoder: nn.Module, device: torch.device) -> nn.Module:
    """The encoder with batch normalisation over the rows of all processes."""
    if device.type == "cuda":
        converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(encoder)
        return converted
    for module in encoder.modules():
        if isinstance(module, _BatchNorm):
            _share(module)
    return encoder


def _share(norm: _BatchNorm) -> None:
    """Normalise over the rows of all processes; torch's SyncBatchNorm is for GPUs only."""
    alone = norm.forward

    def forward(inputs: Tensor) -> Tensor:
        if not norm.training:
            return alone(inputs)
        dims = [0, *range(2, inputs.ndim)]
        shape = (1, -1, *[1] * (inputs.ndim - 2))
        # Sums of a batch in bfloat16 would have no correct digit; torch's own kernel widens it too.
        rows = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        count = rows.new_tensor([math.prod(rows.shape[d] for d in dims)])
        sums: Tensor = _Sum.apply(torch.cat([rows.sum(dims), count]))  # type: ignore[no-untyped-call]
        mean, total = sums[:-1] / sums[-1], sums[-1].detach()
        centred = rows - mean.view(shape)
        spread: Tensor = _Sum.apply(centred.square().sum(dims))  # type: ignore[no-untyped-call]
        variance = spread / total
        _move_statistics(norm, mean.detach(), variance.detach(), total)
        scaled = centred * (variance + norm.eps).rsqrt().view(shape)
        if norm.affine:
            scaled = scaled * norm.weight.view(shape) + norm.bias.view(shape)
        return scaled.to(inputs.dtype)

    norm.forward = forward  # type: ignore[method-assign, assignment]


@torch.no_grad()
def _move_statistics(norm: _BatchNorm, mean: Tensor, variance: Tensor, total: Tensor) -> None:
    if norm.running_mean is None or norm.running_var is None:
        return
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
    momentum = norm.momentum
    if momentum is None:
        momentum = 1 / float(norm.num_batches_tracked or 1)
    norm.running_mean.lerp_(mean, momentum)
    norm.running_var.lerp_(variance * total / (total - 1).clamp(min=1), momentum)


# ------------------------------------------------------------------------------ the judge


class SharedJudge:
    """The judge as all processes of a run see it: the first one hands in, and all get the answers."""

    def __init__(self, processes: Processes, judge: JudgeInterface, device: torch.device):
        self.processes = processes
        self.judge = judge
        self.device = device

    def is_best(self, epoch: int, scores: Any) -> bool:
        """Whether the epoch is the best so far, as the judge told the first process."""
        answer = self.judge.is_best(epoch, scores) if self.processes.leads else None
        return self.processes.broadcast_answer(answer, self.device)

    def grade(self, epoch: int, positive: Any, trusted: Any) -> None:
        """Hand in the pseudo-labels of the unlabelled rows."""
        if self.processes.leads:
            self.judge.grade(epoch, positive, trusted)

    def hand_in(self, epoch: int, train_scores: Any, scores: Any) -> None:
        """Hand in an epoch's scores of training rows and judged rows."""
        if self.processes.leads:
            self.judge.hand_in(epoch, train_scores, scores)

    def record(self, epochs: int, features: Any, scores: Any | None, cosines: Any | None) -> None:
        """Hand in outputs of the sampled training rows."""
        if self.processes.leads:
            self.judge.record(epochs, features, scores, cosines)

    def hand_in_weights(self, weights: Any) -> None:
        """Hand in the classifier's weights after the last epoch."""
        if self.processes.leads:
            self.judge.hand_in_weights(weights)

    def save(self, epoch: int) -> None:
        """Wait until the judge has stored everything that was handed in."""
        if self.processes.leads:
            self.judge.save(epoch)
