"""The network that is trained and its average, on one device and in one precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from ssmlbench.core.errors import ContractError
from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs.encoders import Encoder
from ssmlbench.inputs.encoders.layout import placed
from ssmlbench.kit.heads import Dropout, Network, build_projection, start_at_zero
from ssmlbench.kit.method import Method
from ssmlbench.kit.pools import Outputs
from ssmlbench.training.compiled import CompiledEncoders
from ssmlbench.training.device import mixed_precision
from ssmlbench.training.ema import Ema
from ssmlbench.training.encoding import EncoderPass, recompute_blocks
from ssmlbench.training.out_of_memory import suppress_out_of_memory
from ssmlbench.training.processes import SharedPass, share_statistics


class NoHead(nn.Module):
    """In the place of a head: no outputs."""

    def forward(self, features: Tensor) -> Outputs:
        """Return nothing beside the features, which the network adds."""
        return {}


class Model:
    """A method's network on top of an encoder, and the exponential moving average of its weights."""

    def __init__(
        self,
        spec: RunSpec,
        method: Method,
        encoder: Encoder,
        device: torch.device,
        encoding: EncoderPass | None = None,
        warn: Callable[[str], None] = lambda text: None,
    ):
        """encoding: how rows go through the encoder; None: all together. warn: gets warnings."""
        self.device = device
        self.encoding = encoding or EncoderPass()
        self.encoder = encoder
        self.compiled = CompiledEncoders(warn) if spec.compile else None
        self.starts_from_file = spec.weights.partition("@")[0] not in ("", "none")
        self.batch_rows = encoder.batch_rows
        self.autocast, self.scaler = mixed_precision(device, spec.precision)
        projection, width = build_projection(spec.projection, encoder.features, spec.hidden_dropout)
        head = method.build_head(width)
        if not isinstance(head, nn.Module):
            kind = "nothing" if head is None else f"a {type(head).__name__}"
            raise ContractError(f"build_head returned {kind}; expected a module", "build_head")
        if spec.head_start == "zero":
            start_at_zero(head)
        dropout = Dropout(spec.input_dropout * spec.dropout_factor)
        self.network = placed(Network(encoder, projection, head, dropout), device)
        self.ema = Ema(self.network, spec.ema_decay)
        # After the copy: the average is never trained.
        if isinstance(self.encoding, SharedPass) and self.encoding.micro_batch is None:
            self.network.encoder = share_statistics(encoder, device)
        if self.encoding.recomputes:
            recompute_blocks(cast(Encoder, self.network.encoder))

    @property
    def averaged_network(self) -> Network:
        """The network with the averaged weights."""
        return cast(Network, self.ema.network)

    def named(self, name: str) -> Network:
        """The network of a name: "raw" (the one that is trained) or "ema" (its average)."""
        networks = {"raw": self.network, "ema": self.averaged_network}
        if name not in networks:
            raise ContractError(f"model={name!r}: expected 'ema' or 'raw'")
        return networks[name]

    def run(self, inputs: Tensor) -> Outputs:
        """Outputs of the network that is trained."""
        return self.outputs(self.network, inputs)

    @torch.no_grad()
    def run_averaged(self, inputs: Tensor) -> Outputs:
        """Outputs of the averaged network, without gradients."""
        return self.outputs(self.averaged_network, inputs)

    @torch.no_grad()
    def predict(self, network: Network, inputs: Tensor, features_only: bool = False) -> Outputs:
        """Outputs of a network without gradients; in smaller pieces if memory does not suffice.

        features_only: without the head, whose outputs nobody reads.
        """
        if features_only:
            network = Network(network.encoder, network.projection, NoHead(), network.dropout)
        while True:
            with suppress_out_of_memory(self.device):
                return self._outputs_of_pass(network, inputs)
            self.encoding.shrink()

    def _outputs_of_pass(self, network: Network, inputs: Tensor) -> Outputs:
        """Outputs in a pass over many rows, whose encoder may be compiled."""
        if self.compiled is None:
            return self.outputs(network, inputs)
        with self.autocast():
            features = self.compiled.run(
                network.encoder, lambda encoder: self.encoding(encoder, inputs)
            )
            return self._above(network, features)

    def outputs(self, network: Network, inputs: Tensor) -> Outputs:
        """Outputs of a network over a batch; the encoder may see its rows in pieces."""
        with self.autocast():
            if self.encoding.is_whole(inputs):
                return cast(Outputs, network(inputs))
            return self._above(network, self.encoding(network.encoder, inputs))

    @staticmethod
    def _above(network: Network, features: Tensor) -> Outputs:
        """Outputs of a network from its encoder's features."""
        above = Network(nn.Identity(), network.projection, network.head, network.dropout)
        return cast(Outputs, above(features))

    @property
    def trained_weights(self) -> list[nn.Parameter]:
        """All weights of the network but the encoder's fixed ones."""
        fixed = {f"encoder.{name}" for name in self.encoder.fixed_names()}
        return [weight for name, weight in self.network.named_parameters() if name not in fixed]

    def learnt_state(self) -> dict[str, Tensor]:
        """The averaged network's state, without the weights that training did not change."""
        left_out = self.unchanged_names()
        state = self.ema.network.state_dict()
        return {name: value for name, value in state.items() if name not in left_out}

    def unchanged_names(self) -> set[str]:
        """Entries of a network's state that are still those of the encoder's weight file."""
        if not self.starts_from_file:
            return set()
        return {f"encoder.{name}" for name in self.encoder.fixed_names()}

    def tensors(self) -> list[Tensor]:
        """Weights and statistics of both networks."""
        networks = (self.network, self.averaged_network)
        return [value for network in networks for value in network.state_dict().values()]

    def has_finite_weights(self) -> bool:
        """Whether every weight that is trained is a finite number."""
        return all(bool(weight.isfinite().all()) for weight in self.network.parameters())
