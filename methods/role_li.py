"""ROLE+LI: ROLE, its classifier and label matrix first learnt on a frozen encoder."""

from __future__ import annotations

from dataclasses import dataclass

from ssmlbench.api import EstimatedLabelsMethod, Network, Pools, option


class RoleLi(EstimatedLabelsMethod):
    """ROLE with linear initialisation: the encoder is frozen for the first part of the run."""

    name = "role_li"
    differences = (
        *EstimatedLabelsMethod.differences,
        "one schedule runs through both parts; released: a run of 25 epochs with its own learning "
        "rate, then one of 10",
        "it is meant for a pretrained encoder; one that starts from scratch is frozen at random "
        "weights, and where the encoder has no weights (vectors) it is ROLE",
    )

    @dataclass(frozen=True)
    class Config(EstimatedLabelsMethod.Config):
        frozen_share: float = option(25 / 35, "part of the epochs with a frozen encoder")

    def start_epoch(self, pools: Pools) -> None:
        self.frozen = pools.epoch <= round(self.config.frozen_share * pools.epochs)

    def start_steps(self, network: Network) -> None:
        # The optimiser skips weights without a gradient, their decay included.
        network.encoder.requires_grad_(not self.frozen).train(not self.frozen)
