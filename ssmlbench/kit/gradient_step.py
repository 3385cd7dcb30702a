"""One gradient step as a method sees it: backward, gradients, moved weights. It hides loss scaling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ssmlbench.kit.heads import Network
from ssmlbench.kit.pools import Forward


class GradientStep:
    """Handed to `Method.step`; the trainer applies the optimiser after it returns.

    network     the network that is trained
    parameters  all parameters of the trainer's optimiser: the network's, then the method's own
    lr          the network's learning rate at this step, as scheduled
    """

    def __init__(
        self,
        network: Network,
        parameters: Sequence[nn.Parameter],
        scaler: torch.amp.GradScaler | None = None,
        *,
        forward: Forward | None = None,
        lr: float = 0.0,
    ):
        """forward: the pass over this step's batches, which `moved` runs again."""
        self.network = network
        self.parameters = parameters
        self.lr = lr
        self._forward = forward
        self._scaler = scaler
        self._scaled_steps = 0  # optimisers that stepped with scaled gradients

    def backward(self, loss: Tensor) -> None:
        """Add the loss's gradients to `.grad`."""
        (self._scaler.scale(loss) if self._scaler else loss).backward()

    def apply(self, optimiser: torch.optim.Optimizer) -> None:
        """Take one step of an optimiser. Where the loss is scaled, gradients are unscaled first."""
        weights = [weight for group in optimiser.param_groups for weight in group["params"]]
        if self._scaler is not None and any(weight.grad is not None for weight in weights):
            self._scaler.step(optimiser)
            self._scaled_steps += 1
        else:  # a scaler raises if no weight has a gradient, as in a frozen encoder
            optimiser.step()

    def finish(self) -> None:
        """Update the loss scale, after the last optimiser of a step."""
        if self._scaler is not None and self._scaled_steps:
            self._scaler.update()

    def gradients(self, loss: Tensor, retain_graph: bool = False) -> list[Tensor | None]:
        """The loss's true (unscaled) gradients, without touching `.grad`."""
        scaled = self._scaler.scale(loss) if self._scaler else loss
        found = torch.autograd.grad(
            scaled, self.parameters, retain_graph=retain_graph, allow_unused=True
        )
        if self._scaler is None:
            return list(found)
        scale = self._scale(loss.device)
        return [None if g is None else g / scale for g in found]

    def add(self, gradients: Sequence[Tensor | None]) -> None:
        """Add true gradients to `.grad`, in the scale that `.grad` is in."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            if gradient is None:
                continue
            scaled = gradient if self._scaler is None else gradient * self._scale(gradient.device)
            parameter.grad = scaled if parameter.grad is None else parameter.grad + scaled

    def _scale(self, device: torch.device) -> Tensor:
        """The scale of the loss, on a device; `GradScaler.get_scale` would wait for the device."""
        assert self._scaler is not None
        scale: Tensor = self._scaler.scale(torch.ones((), device=device))
        return scale

    @contextmanager
    def moved(self, shifts: Sequence[Tensor | None]) -> Iterator[None]:
        """Add shifts to the weights inside the block, and restore the exact old weights after it.

        Inside, batches compute outputs with the moved weights. Batch normalisation does not count the
        same rows a second time in its running statistics.
        """
        moving = [(p, s) for p, s in zip(self.parameters, shifts, strict=True) if s is not None]
        before = [p.detach().clone() for p, _ in moving]
        norms = [
            m for m in self.network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)
        ]
        momenta = [norm.momentum for norm in norms]
        with torch.no_grad():
            for parameter, shift in moving:
                parameter.add_(shift)
        for norm in norms:
            norm.momentum = 0.0
        if self._forward is not None:
            self._forward.forget()
        try:
            yield
        finally:
            with torch.no_grad():
                for (parameter, _), old in zip(moving, before, strict=True):
                    parameter.copy_(old)
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum
