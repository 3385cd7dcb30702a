"""DRML: two classifiers that disagree on unlabelled rows, and a network relating their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from ssmlbench.api import Batch, GradientStep, Method, Network, Outputs, Pools, between, option

MOST_WEIGHTS = 10**8  # of the relation network: 2 GB with gradients, their moments and the average


class Drml(Method):
    """Two classifiers are trained to disagree, and a projector to undo their disagreement.

    Rows on which they agree become labelled; a relation network over f₁f₂ᵀ gives the scores.
    """

    name = "drml"
    paper = "Wang et al., Dual Relation Semi-Supervised Multi-Label Learning, AAAI 2020"
    regimes = {"semi"}
    warm_up = False  # the classifiers meet unlabelled rows from the first step
    differences = (
        "losses: sums of squared errors over labels (paper); the released code has means, relation "
        "weight 0.2 and 1e-5 Σ|f₁ - f₂| (losses=released)",
        "layers: one per module (paper); two in the released code (layers=released). The paper's "
        "width of the projector is not stated: 1024, as released",
        "promotion: the 20 rows of least disagreement an epoch, binarised (paper, most data sets); "
        "released (CUB): all rows under a threshold, soft (promotion=threshold, promoted=soft)",
        "the first promotion comes after the first third of the epochs and one more, one epoch before the "
        "released code's (its loops 0 to 51 of 150 come first; here 51 of 150 epochs)",
        "the released demo's unlabelled rows are its test rows; here the test rows are separate",
        "made for fixed features; here the encoder learns in step A, at the common learning rate",
        "λ is not stated: 1. The paper's equal batches are not the benchmark's: each pool's loss "
        "is divided by its rows, which keeps their balance",
        "promoted rows join the labelled loss when they come up among the unlabelled rows",
        "test rows are scored by weights averaged over steps, as for every method here (released: none)",
    )

    @dataclass(frozen=True)
    class Config(Method.Config):
        losses: Literal["paper", "released"] = option("paper", "form of the losses")
        layers: Literal["paper", "released"] = option("paper", "one layer per module, or two")
        width: int = option(1024, "width of the projected features")
        eta: float = option(
            0.5, "η: share of the classifiers in the joint loss", search=between(0.2, 0.8)
        )
        classifier_weight: float = option(
            1.0,
            "λ: weight of L_C against the discrepancy in step B",
            search=between(0.1, 10.0, log=True),
        )
        promotion: Literal["smallest", "threshold"] = option("smallest", "which rows are promoted")
        promoted: Literal["binary", "soft"] = option("binary", "labels of promoted rows")
        promoted_rows: int = option(
            20, "rows promoted an epoch (promotion=smallest)", search=between(10, 20)
        )
        threshold: float = option(1.0, "d, for 312 labels; scaled by K / 312 (promotion=threshold)")
        promotion_start: float = option(1 / 3, "the part of the epochs without promotion")
        joint_lr: float = option(
            1e-4,
            "step A: projector and classifiers, on known labels",
            search=between(1e-5, 1e-3, log=True),
        )
        discrepancy_lr: float = option(1e-5, "step B: classifiers, to disagree")
        projector_lr: float = option(1e-5, "step C: projector, to make them agree")
        relation_lr: float = option(
            1e-3, "step D: relation network", search=between(1e-4, 1e-2, log=True)
        )

    @classmethod
    def most_labels(cls, config: Any) -> int:
        # R reads K² products: K³ weights in one layer, 1000 K² in two.
        return int(
            (MOST_WEIGHTS / 1000) ** 0.5 if config.layers == "released" else MOST_WEIGHTS ** (1 / 3)
        )

    def build_head(self, width: int) -> nn.Module:
        return DualHead(width, self.config.width, self.labels, self.config.layers == "released")

    def build_optimisers(self, network: Network) -> dict[str, Optimizer]:
        head, config = dual_head(network), self.config
        classifiers = [*head.first.parameters(), *head.second.parameters()]
        projector, relation = list(head.projector.parameters()), list(head.relation.parameters())
        return {
            "joint": Adam([*classifiers, *projector], lr=config.joint_lr, fused=True),
            "discrepancy": Adam(classifiers, lr=config.discrepancy_lr, fused=True),
            "projector": Adam(projector, lr=config.projector_lr, fused=True),
            "relation": Adam(relation, lr=config.relation_lr, fused=True),
        }

    def setup(self, pools: Pools) -> None:
        self.targets = torch.zeros_like(pools.unlabelled.observed, dtype=torch.float)
        self.trust = self.targets[:, :1].clone()  # N_u × 1: 1 once a row is promoted

    def start_epoch(self, pools: Pools) -> None:
        config, rows = self.config, pools.unlabelled
        if not len(rows) or pools.epoch - 1 <= config.promotion_start * pools.epochs:
            return
        apart = rows.output("disagreement", model="raw").masked_fill(
            self.trust[:, 0] > 0, torch.inf
        )
        if config.promotion == "smallest":
            chosen = apart.argsort(stable=True).argsort() < config.promoted_rows
            chosen &= apart.isfinite()
        else:
            chosen = apart < config.threshold * self.labels / 312
        logits = rows.logits(model="raw")
        rows.forget()  # the probabilities take the logits' place in memory
        g = logits.sigmoid_()
        made = g if config.promoted == "soft" else g >= 0.5
        torch.where(chosen[:, None], made, self.targets, out=self.targets)
        self.trust = torch.maximum(self.trust, chosen[:, None].to(g))

    def step(
        self, labelled: Batch, unlabelled: Batch | None, update: GradientStep
    ) -> dict[str, Tensor]:
        head, optimisers = dual_head(update.network), self.optimisers
        batches = [labelled] if unlabelled is None else [labelled, unlabelled]
        made = [batch.outputs("strong") for batch in batches]
        outputs = {name: torch.cat([each[name] for each in made]) for name in made[0]}
        targets = labelled.observed.float()
        known = torch.ones_like(targets[:, :1])
        if unlabelled is not None:
            promoted = self.trust[unlabelled.rows]
            targets = torch.cat([targets, self.targets[unlabelled.rows]])
            known = torch.cat([known, promoted])

        # A. The encoder learns with the trainer's optimiser, after this step.
        terms = {"joint": self.joint_loss(outputs, targets, known)}
        update.backward(terms["joint"])
        update.apply(optimisers["joint"])
        head.zero_grad(set_to_none=True)  # the trainer's optimiser passes the head by
        x = outputs["features"].detach()
        if unlabelled is not None:
            h = head.projector(x)  # B moves the classifiers alone: C can use it too
            first, others = len(labelled.rows), 1 - promoted
            outputs = head.classify(h.detach())
            if self.config.losses == "released":
                outputs |= head.relate(outputs)
            fit = self.classifier_loss(outputs, targets, known)
            gap = self.discrepancy({name: f[first:] for name, f in outputs.items()}, others)
            descend(optimisers["discrepancy"], fit - gap)  # B
            terms["discrepancy"] = self.discrepancy(head.classify(h[first:]), others)
            descend(optimisers["projector"], terms["discrepancy"])  # C
        with torch.no_grad():
            outputs = head.classify(head.projector(x))
        g = head.relate(outputs)["logits"].sigmoid()
        descend(optimisers["relation"], self.relation_loss(g, targets, known))  # D
        return terms

    def joint_loss(self, outputs: Outputs, targets: Tensor, known: Tensor) -> Tensor:
        f1, f2, g = outputs["first"], outputs["second"], outputs["logits"].sigmoid()
        fit = classifier_loss(f1, f2, targets, known) / known.sum()
        share = 2 / self.labels if self.config.losses == "released" else self.config.eta / 2
        return share * fit + self.relation_loss(g, targets, known)

    def relation_loss(self, g: Tensor, targets: Tensor, known: Tensor) -> Tensor:
        """The part of the joint loss that the relation network can change."""
        released = self.config.losses == "released"
        eta: float = self.config.eta
        share = 0.2 / self.labels if released else 1 - eta
        return share * squared(g, targets, known) / known.sum()

    def classifier_loss(self, outputs: Outputs, targets: Tensor, known: Tensor) -> Tensor:
        if self.config.losses == "released":
            return self.joint_loss(outputs, targets, known)
        weight: float = self.config.classifier_weight
        fit = classifier_loss(outputs["first"], outputs["second"], targets, known)
        return weight * fit / known.sum()

    def discrepancy(self, outputs: Outputs, apart: Tensor) -> Tensor:
        gap = (apart * (outputs["first"] - outputs["second"]).abs()).sum()
        if self.config.losses == "released":
            return 1e-5 * gap
        return gap / self.labels / apart.sum().clamp(min=1)


class DualHead(nn.Module):
    """x → P → C₁, C₂ → f₁, f₂ → R(f₁f₂ᵀ) → g. Out: g's logits, f₁ and f₂.

    f₁ and f₂ are probabilities. In evaluation their disagreement takes their place: one number a row.
    """

    def __init__(self, width: int, projected: int, labels: int, deep: bool):
        super().__init__()
        self.projector = layers(width, projected if deep else None, projected, nn.LeakyReLU(0.1))
        self.first = layers(projected, 800 if deep else None, labels, nn.ReLU())
        self.second = layers(projected, 800 if deep else None, labels, nn.ReLU())
        self.relation = layers(labels * labels, 1000 if deep else None, labels, nn.ReLU())

    def forward(self, features: Tensor) -> Outputs:
        answers = self.classify(self.projector(features))
        related = self.relate(answers)
        if self.training:
            return answers | related
        return {"disagreement": disagreement(**answers), **related}

    def classify(self, h: Tensor) -> Outputs:
        return {"first": self.first(h).sigmoid(), "second": self.second(h).sigmoid()}

    def relate(self, answers: Outputs) -> Outputs:
        return {"logits": self.relation(relations(answers["first"], answers["second"]))}


def dual_head(network: Network) -> DualHead:
    """The head that `build_head` gave."""
    assert isinstance(network.head, DualHead)
    return network.head


def layers(width: int, hidden: int | None, out: int, activation: nn.Module) -> nn.Sequential:
    """One linear layer, or two; weights normal with σ = √(2 / fan-in), biases zero."""
    if hidden is None:
        made = nn.Sequential(nn.Linear(width, out))
    else:
        made = nn.Sequential(nn.Linear(width, hidden), activation, nn.Linear(hidden, out))
    for layer in made:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=(2 / layer.in_features) ** 0.5)
            nn.init.zeros_(layer.bias)
    return made


def descend(optimiser: Optimizer, loss: Tensor) -> None:
    """One step of the optimiser on its own weights alone, their `.grad` left empty."""
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
        weight.grad = gradient
    optimiser.step()
    for weight in weights:
        weight.grad = None


def relations(f1: Tensor, f2: Tensor) -> Tensor:
    """vec(f₁f₂ᵀ), B × K²."""
    return (f1[:, :, None] * f2[:, None, :]).flatten(1)


def disagreement(first: Tensor, second: Tensor) -> Tensor:
    """D_i = ‖f₁ - f₂‖² of each row."""
    return (first - second).square().sum(1)


def squared(f: Tensor, targets: Tensor, known: Tensor) -> Tensor:
    """‖f - Y‖² over the known rows; known: B × 1."""
    return (known * (f - targets).square()).sum()


def classifier_loss(f1: Tensor, f2: Tensor, targets: Tensor, known: Tensor) -> Tensor:
    """L_C = ½ (‖f₁ - Y‖² + ‖f₂ - Y‖²)."""
    return (squared(f1, targets, known) + squared(f2, targets, known)) / 2
