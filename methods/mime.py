"""MIME: a variational information bottleneck, and confident predictions that become positives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ssmlbench.api import Batch, Method, Pool, Pools, between, choice, option, soft_loss

SMALLEST_DEVIATION = 1e-6  # a code that has collapsed to a point still has a finite KL

MOST_WEIGHTS = 2**25  # of the layer that emits the codes: a step computes each of them for each row


class Mime(Method):
    """Each label is read off a small random code; predictions above θ become positives."""

    name = "mime"
    paper = (
        "Liu et al., Revisiting Pseudo-Label for Single-Positive Multi-Label Learning, ICML 2023"
    )
    regimes = {
        *("semi", "single-positive", "single-positive-negatives"),
        *("partial-positive", "partial", "full"),
    }
    labelled_views = ("strong",)
    unlabelled_views = ("strong",)
    differences = (
        "written after author-side code, the official repository and the paper's body not being at "
        "hand: the objective is the code's, and two designs are seen there. The one here: pooled "
        "feature, MLP, code, one linear layer shared by all labels; its K MLPs are one that emits "
        "K codes",
        "codes are sampled at evaluation too in that code; here the mean is used",
        "θ .95 and z 256 in a later file, .8 and 512 in an earlier one; here .95 and 64. The MLP has 1024 "
        "hidden units there and 256 here",
        "made for single positives. Under semi, labelled rows keep their labels; unlabelled rows "
        "join after warm-up (reading=excluded) or are all negative from the start (reading=an)",
        "positives are added from the end of warm-up on (reading=excluded), or after warmup_epochs "
        "epochs (reading=an); the authors' warm-up is 2 epochs",
        "incomplete last batches get pseudo-labels too (seen in code: skipped)",
    )

    @dataclass(frozen=True)
    class Config(Method.Config):
        beta: float = option(1e-4, "β: weight of the KL term", search=between(1e-5, 1e-3, log=True))
        theta: float = option(
            0.95,
            "θ: a prediction above it makes an entry positive, for good",
            search=between(0.8, 0.99),
        )
        code: int = option(64, "z: width of a label's code", search=choice(64, 128, 256))
        hidden: int = option(256, "width of the MLP's hidden layer")
        reading: Literal["excluded", "an"] = option("excluded", "unlabelled rows in warm-up")
        warmup_epochs: int = option(2, "epochs before the first new positive (reading=an)")

    def __init__(self, config: Any, labels: int):
        super().__init__(config, labels)
        # Assumed negatives are used from the first step on.
        self.warm_up = config.reading == "excluded"

    @classmethod
    def most_labels(cls, config: Any) -> int:
        return int(MOST_WEIGHTS // (2 * config.code * config.hidden))

    def build_head(self, width: int) -> nn.Module:
        return CodeHead(width, self.config.hidden, self.config.code, self.labels)

    def setup(self, pools: Pools) -> None:
        # Whatever is not known to be positive is negative until the model says otherwise.
        self.labelled_targets = (pools.labelled.observed == 1).float()
        self.targets = torch.zeros_like(pools.unlabelled.observed, dtype=torch.float32)
        self.trust = torch.ones_like(self.targets[:, :1])  # N_u × 1: every entry is used

    def start_epoch(self, pools: Pools) -> None:
        if self.config.reading == "an" and pools.epoch <= self.config.warmup_epochs:
            return
        self.add_positives_(self.labelled_targets, pools.labelled)
        self.add_positives_(self.targets, pools.unlabelled)

    def add_positives_(self, targets: Tensor, pool: Pool) -> None:
        probabilities = pool.logits(model="raw", view="weak").sigmoid()
        probabilities.masked_fill_(pool.observed == 0, 0.0)  # a known negative stays negative
        add_confident_(targets, probabilities, self.config.theta)

    def loss(self, labelled: Batch, unlabelled: Batch | None) -> dict[str, Tensor]:
        parts = [(labelled, self.labelled_targets)]
        if unlabelled is not None:
            parts.append((unlabelled, self.targets))
        # One mean over the rows of both pools: an entry counts the same wherever it comes from.
        rows = sum(len(batch.rows) for batch, _ in parts)
        terms, divergences = {}, []
        for batch, targets in parts:
            outputs = batch.outputs("strong")
            entries = soft_loss(outputs["logits"], targets[batch.rows])
            terms[batch.pool] = entries.sum() / (rows * self.labels)
            divergences.append(outputs["divergence"].sum())
        terms["bottleneck"] = self.config.beta * torch.stack(divergences).sum() / rows
        return terms


class CodeHead(nn.Module):
    """Features → K codes N(μ, diag σ²) → K logits: sampled in training, of the mean otherwise."""

    def __init__(self, width: int, hidden: int, code: int, labels: int):
        super().__init__()
        self.shape = (labels, 2 * code)
        self.hidden = nn.Sequential(nn.Linear(width, hidden), nn.ReLU())
        self.codes = nn.Linear(hidden, labels * 2 * code)
        self.classify = nn.Linear(code, 1)

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        if not self.training:
            return {"logits": self.logits_of_means(features)}
        mean, raw = self.codes(self.hidden(features)).unflatten(1, self.shape).chunk(2, dim=2)
        deviation = deviations(raw)
        code = mean + deviation * torch.randn_like(deviation)
        logits = self.classify(code).squeeze(2)
        return {"logits": logits, "divergence": kl(mean, deviation)}

    def logits_of_means(self, features: Tensor) -> Tensor:
        """The classifier of the codes' means as one layer: no B × K × z tensor for a whole pool."""
        labels, width = self.shape
        w, means = self.classify.weight[0], slice(0, width // 2)
        weight = torch.einsum("z,kzh->kh", w, self.codes.weight.view(labels, width, -1)[:, means])
        bias = self.codes.bias.view(labels, width)[:, means] @ w + self.classify.bias
        return F.linear(self.hidden(features), weight, bias)


def deviations(raw: Tensor) -> Tensor:
    """σ: positive standard deviations from unbounded parameters."""
    return F.softplus(raw) + SMALLEST_DEVIATION


def kl(mean: Tensor, deviation: Tensor) -> Tensor:
    """The mean of KL(N(μ, σ²) ‖ N(0, 1)) = -½ (1 + 2 log σ - μ² - σ²) over a row. Out: B."""
    moments = (mean.square() + deviation.square()).mean(dim=(1, 2))
    return (moments - 1) / 2 - deviation.log().mean(dim=(1, 2))


def add_confident_(targets: Tensor, probabilities: Tensor, theta: float) -> Tensor:
    """min(obs + [p > θ], 1), in place: positives are added, never withdrawn."""
    return targets.masked_fill_(probabilities > theta, 1.0)
