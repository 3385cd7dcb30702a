"""ROLE+LI: ROLE, its classifier and label matrix first learnt on a frozen encoder."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ssmlbench.api import Batch, EstimatedLabelsMethod, GradientStep, Pools, option


class RoleLi(EstimatedLabelsMethod):
    """Linear initialisation: the encoder joins in for the last part of the run only."""

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
        self.settled = False

    def step(
        self, labelled: Batch, unlabelled: Batch | None, update: GradientStep
    ) -> dict[str, Tensor]:
        if not self.settled:  # in an epoch's first step, after all of the network was set to train
            encoder = update.network.encoder
            # The optimiser passes over weights without a gradient, decay included.
            encoder.requires_grad_(not self.frozen).train(not self.frozen)
            self.settled = True
        return super().step(labelled, unlabelled, update)
