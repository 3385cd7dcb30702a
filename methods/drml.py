"""DRML: two classifiers that disagree on unlabelled rows, and a network relating their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from ssmlbench.method import Method, option
from ssmlbench.pools import Batch, Outputs, Pools
from ssmlbench.search import between
from ssmlbench.update import Update


class Drml(Method):
    """A projector is trained to undo the disagreement its two classifiers are trained to show; rows
    they agree on become labelled, and a relation network over f₁f₂ᵀ gives the answer."""

    name = "drml"
    paper = "Wang et al., Dual Relation Semi-Supervised Multi-Label Learning, AAAI 2020"
    regimes = {"semi"}
    warm_up = False  # the classifiers meet unlabelled rows from the first step
    differences = (
        "losses: sums of squared errors over labels (paper); the released code has means, relation "
        "weight 0.2 and 1e-5 Σ|f₁ - f₂| (losses=released)",
        "layers: one a module (paper); two in the released code (layers=released). The paper's "
        "width of the projector is not stated: 1024, as released",
        "promotion: the 20 rows of least disagreement an epoch, binarised (paper, most data sets); "
        "released (CUB): all rows under a threshold, soft (promotion=threshold, promoted=soft)",
        "the released demo's unlabelled rows are its test rows; here the test rows are apart",
        "made for fixed features; here the encoder learns in step A, at the common learning rate",
        "λ is not stated: 1. The paper's equal batches are not the benchmark's: each pool's loss "
        "is divided by its rows, which keeps their balance",
        "promoted rows join the labelled loss when they come up among the unlabelled rows",
    )

    @dataclass(frozen=True)
    class Config(Method.Config):
        losses: Literal["paper", "released"] = option("paper", "form of the losses")
        layers: Literal["paper", "released"] = option("paper", "one layer a module, or two")
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

    def build_head(self, width: int) -> nn.Module:
        return DualHead(width, self.config.width, self.labels, self.config.layers == "released")

    def build_optimisers(self, network: nn.Module) -> dict[str, Optimizer]:
        head, config = network.head, self.config
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
        f1, f2 = (rows.output(name, model="raw") for name in ("first", "second"))
        apart = disagreement(f1, f2).masked_fill(self.trust[:, 0] > 0, torch.inf)
        if config.promotion == "smallest":
            chosen = apart.argsort(stable=True).argsort() < config.promoted_rows
            chosen &= apart.isfinite()
        else:
            chosen = apart < config.threshold * self.labels / 312
        g = rows.logits(model="raw").sigmoid()
        made = g if config.promoted == "soft" else (g >= 0.5).to(g)
        self.targets = torch.where(chosen[:, None], made, self.targets)
        self.trust = torch.maximum(self.trust, chosen[:, None].to(g))

    def step(self, labelled: Batch, unlabelled: Batch | None, update: Update) -> dict[str, Tensor]:
        head, optimisers = update.network.head, self.optimisers
        features, targets = labelled.features("strong"), labelled.observed.float()
        known = torch.ones_like(targets[:, :1])
        apart = torch.zeros_like(known)
        if unlabelled is not None:
            features = torch.cat([features, unlabelled.features("strong")])
            targets = torch.cat([targets, self.targets[unlabelled.rows]])
            promoted = self.trust[unlabelled.rows]
            known, apart = torch.cat([known, promoted]), torch.cat([apart, 1 - promoted])

        # A. The head has optimisers of its own; the encoder's gradient goes on from x.
        x = features.detach().requires_grad_(features.requires_grad)
        terms = {"joint": self.joint_loss(head(x), targets, known)}
        beyond = descend(optimisers["joint"], terms["joint"], x)
        if beyond is not None:
            update.backward((features * beyond).sum())
        x = x.detach()
        if unlabelled is not None:
            h = head.projector(x)  # B moves the classifiers alone: C can use it too
            outputs = head.answers(h.detach())
            fit = self.classifier_loss(outputs, targets, known)
            descend(optimisers["discrepancy"], fit - self.discrepancy(outputs, apart))  # B
            terms["discrepancy"] = self.discrepancy(head.answers(h), apart)
            descend(optimisers["projector"], terms["discrepancy"])  # C
        descend(optimisers["relation"], self.joint_loss(head(x), targets, known))  # D
        return terms

    def joint_loss(self, outputs: Outputs, targets: Tensor, known: Tensor) -> Tensor:
        f1, f2, g = outputs["first"], outputs["second"], outputs["logits"].sigmoid()
        if self.config.losses == "released":
            return released_loss(f1, f2, g, targets, known)
        fit = self.config.eta / 2 * classifier_loss(f1, f2, targets, known)
        return (fit + (1 - self.config.eta) * squared(g, targets, known)) / known.sum()

    def classifier_loss(self, outputs: Outputs, targets: Tensor, known: Tensor) -> Tensor:
        if self.config.losses == "released":
            return self.joint_loss(outputs, targets, known)
        fit = classifier_loss(outputs["first"], outputs["second"], targets, known)
        return self.config.classifier_weight * fit / known.sum()

    def discrepancy(self, outputs: Outputs, apart: Tensor) -> Tensor:
        gap = (apart * (outputs["first"] - outputs["second"]).abs()).sum()
        if self.config.losses == "released":
            return 1e-5 * gap
        return gap / self.labels / apart.sum().clamp(min=1)


class DualHead(nn.Module):
    """x → P → C₁, C₂ → f₁, f₂ → R(f₁f₂ᵀ) → g. Out: g's logits, and f₁ and f₂ as probabilities."""

    def __init__(self, width: int, projected: int, labels: int, deep: bool):
        super().__init__()
        self.projector = layers(width, projected if deep else None, projected, nn.LeakyReLU(0.1))
        self.first = layers(projected, 800 if deep else None, labels, nn.ReLU())
        self.second = layers(projected, 800 if deep else None, labels, nn.ReLU())
        self.relation = layers(labels * labels, 1000 if deep else None, labels, nn.ReLU())

    def forward(self, features: Tensor) -> Outputs:
        return self.answers(self.projector(features))

    def answers(self, h: Tensor) -> Outputs:
        f1, f2 = self.first(h).sigmoid(), self.second(h).sigmoid()
        return {"logits": self.relation(relations(f1, f2)), "first": f1, "second": f2}


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


def descend(optimiser: Optimizer, loss: Tensor, inputs: Tensor | None = None) -> Tensor | None:
    """One step of the optimiser on its own weights; returns the gradient at the inputs, if any.

    `.grad` is left empty, so the trainer's optimiser passes these weights by.
    """
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    wanted = [inputs] if inputs is not None and inputs.requires_grad else []
    gradients = torch.autograd.grad(loss, weights + wanted)
    for weight, gradient in zip(weights, gradients, strict=False):
        weight.grad = gradient
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return gradients[-1] if wanted else None


def relations(f1: Tensor, f2: Tensor) -> Tensor:
    """vec(f₁f₂ᵀ), B × K²."""
    return (f1[:, :, None] * f2[:, None, :]).flatten(1)


def disagreement(f1: Tensor, f2: Tensor) -> Tensor:
    """D_i = ‖f₁ - f₂‖² of each row."""
    return (f1 - f2).square().sum(1)


def squared(f: Tensor, targets: Tensor, known: Tensor) -> Tensor:
    """‖f - Y‖² over the known rows; known: B × 1."""
    return (known * (f - targets).square()).sum()


def classifier_loss(f1: Tensor, f2: Tensor, targets: Tensor, known: Tensor) -> Tensor:
    """L_C = ½ (‖f₁ - Y‖² + ‖f₂ - Y‖²)."""
    return (squared(f1, targets, known) + squared(f2, targets, known)) / 2


def released_loss(f1: Tensor, f2: Tensor, g: Tensor, targets: Tensor, known: Tensor) -> Tensor:
    """C: the three mean squared errors, the relation network's at 0.2."""
    first, second, relation = (squared(f, targets, known) for f in (f1, f2, g))
    return (first + second + 0.2 * relation) / (known.sum() * targets.shape[1])
