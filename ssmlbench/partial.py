"""What methods for partial labels share: one entry loss for each of the three codes (1 positive,
0 known negative, -1 unobserved), the two readings of unlabelled rows, and the state that a few of
them keep for every row. The methods themselves are files in methods/.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ssmlbench.method import Method, option
from ssmlbench.pools import Batch, Pool, Pools
from ssmlbench.search import between, choice
from ssmlbench.update import Update

KAPPA = (
    "κ: expected positives of a row; none takes the prior's sum, which is the labelled rows' mean "
    "in semi and full. Give it in single-positive (the sum is then at most 1) and partial-positive"
)
EPSILON = 1e-5


# ------------------------------------------------------------------------------- entry losses


def nl(t: Tensor) -> Tensor:
    """-log(t + 1e-5) of a probability: Cole et al.'s negative logarithm, bounded at t = 0."""
    return -(t + EPSILON).log()


def nl_positive(logits: Tensor) -> Tensor:
    """nl(p)."""
    return nl(logits.sigmoid())


def nl_negative(logits: Tensor) -> Tensor:
    """nl(1 - p), without the subtraction that would round a small 1 - p away."""
    return nl((-logits).sigmoid())


def soft_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """t nl(p) + (1 - t) nl(1 - p)."""
    return targets * nl_positive(logits) + (1 - targets) * nl_negative(logits)


def entropy(logits: Tensor) -> Tensor:
    """H(p) = p nl(p) + (1 - p) nl(1 - p), differentiated through both factors."""
    return soft_loss(logits, logits.sigmoid())


def smoothed(towards: Tensor, other: Tensor, epsilon: float) -> Tensor:
    """An entry loss with ε of the other label's: targets 1 - ε and ε."""
    return (1 - epsilon) * towards + epsilon * other


def by_code(observed: Tensor, positive: Tensor, negative: Tensor, unobserved: Tensor) -> Tensor:
    """Each entry's loss by what is known of it, B × K."""
    return torch.where(observed == 1, positive, torch.where(observed == 0, negative, unobserved))


def positives_penalty(logits: Tensor, kappa: Tensor) -> Tensor:
    """((mean over rows of Σ_k p_ik) - κ)² / K²."""
    expected = logits.sigmoid().sum(1).mean()
    return ((expected - kappa) / logits.shape[1]) ** 2


def expected_positives(given: float | None, pool: Pool) -> Tensor:
    """κ as a tensor: what the user gave, or the sum of the prior."""
    estimated = pool.prior.sum().float()
    return estimated if given is None else torch.full_like(estimated, given)


# ------------------------------------------------------------------------------- the base class


class PartialMethod(Method):
    """The mean of one entry loss over the rows of both batches.

    A method says what an unobserved entry costs, and what else it changes.
    """

    regimes = frozenset({"semi", "single-positive", "partial-positive", "full"})
    warm_up = False
    classifier: nn.Module

    @dataclass(frozen=True)
    class Config(Method.Config):
        reading: Literal["an", "lab"] = option(
            "an", "unlabelled rows in semi: an, all their entries are unobserved; lab, left out"
        )

    def __init__(self, config: Any, labels: int):
        super().__init__(config, labels)
        if config.reading == "lab":
            self.unlabelled_views = ()

    def build_head(self, width: int) -> nn.Module:
        head = super().build_head(width)
        # Looked at, not owned: registered here, it would be trained and saved twice.
        object.__setattr__(self, "classifier", head)
        return head

    def setup(self, pools: Pools) -> None:
        self.n_labelled = len(pools.labelled)

    def positive(self, logits: Tensor) -> Tensor:
        return nl_positive(logits)

    def negative(self, logits: Tensor) -> Tensor:
        """Of entries known to be negative."""
        return nl_negative(logits)

    def unobserved(self, logits: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define unobserved or entry_loss")

    def entry_loss(self, logits: Tensor, observed: Tensor) -> Tensor:
        """B × K."""
        return by_code(
            observed, self.positive(logits), self.negative(logits), self.unobserved(logits)
        )

    def terms(self, logits: Tensor, observed: Tensor) -> dict[str, Tensor]:
        """What `loss` returns, of the rows of both batches together."""
        return {"entries": self.entry_loss(logits, observed).mean()}

    def loss(self, labelled: Batch, unlabelled: Batch | None) -> dict[str, Tensor]:
        return self.terms(*self.together(labelled, unlabelled))

    def together(self, labelled: Batch, unlabelled: Batch | None) -> tuple[Tensor, Tensor]:
        """Logits and observed labels of all rows of the step."""
        batches = [labelled] if unlabelled is None else [labelled, unlabelled]
        logits = torch.cat([batch.logits("strong") for batch in batches])
        return logits, torch.cat([batch.observed for batch in batches])

    def positions(self, labelled: Batch, unlabelled: Batch | None) -> Tensor:
        """The rows' places in a table of all rows: the labelled pool, then the unlabelled one."""
        if unlabelled is None:
            return labelled.rows
        return torch.cat([labelled.rows, self.n_labelled + unlabelled.rows])

    def all_observed(self, pools: Pools) -> Tensor:
        """The observed labels of that table, N × K."""
        if not self.unlabelled_views:
            return pools.labelled.observed
        return torch.cat([pools.labelled.observed, pools.unlabelled.observed])


class PenalisedMethod(PartialMethod):
    """Unobserved entries are learnt as negatives, with a penalty on the classifier's weights."""

    paper = "a baseline of Zhou et al., Acknowledging the Unknown […], ECCV 2022"
    differences = (
        "neither the regularised parameters nor λ are stated: the classifier's weights without its "
        "bias, λ from a grid of 1e-6 to 1e-3",
        "the trainer's decoupled weight decay is there beside it, as for every method",
    )

    @dataclass(frozen=True)
    class Config(PartialMethod.Config):
        penalty: float = option(
            1e-5, "λ: weight of the penalty", search=between(1e-6, 1e-3, log=True)
        )

    def unobserved(self, logits: Tensor) -> Tensor:
        return nl_negative(logits)

    def norm(self, weight: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define norm")

    def terms(self, logits: Tensor, observed: Tensor) -> dict[str, Tensor]:
        weights = self.config.penalty * self.norm(self.classifier.get_parameter("weight"))
        return {**super().terms(logits, observed), "weights": weights}


# ------------------------------------------------------------------------------- large losses


class LargeLossMethod(PartialMethod):
    """Unobserved entries are assumed negative; those with the largest losses are doubted."""

    @dataclass(frozen=True)
    class Config(PartialMethod.Config):
        delta: float = option(
            0.2,
            "Δ_rel: percent of a batch's entries doubted more every epoch",
            search=choice(0.1, 0.2, 0.3, 0.4, 0.5),
        )
        delta_epochs: int | None = option(
            10,
            "the run length that Δ_rel was chosen for (the paper's 10 epochs): a run of any length "
            "ends at the same share; none takes Δ_rel per epoch of this run",
        )

    def start_epoch(self, pools: Pools) -> None:
        self.rate = self.doubted_share(pools.epoch, pools.epochs)

    def doubted_share(self, epoch: int, epochs: int) -> float:
        """r_e = (e - 1) Δ, e from 1."""
        return (epoch - 1) * self.delta(epochs)

    def delta(self, epochs: int) -> float:
        """Δ as a fraction, per epoch of this run."""
        planned = self.config.delta_epochs
        stretch = 1.0 if planned is None else (planned - 1) / max(epochs - 1, 1)
        return self.config.delta / 100 * stretch


def large_losses(losses: Tensor, observed: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """The unobserved entries whose loss reaches t, and t: the ⌈B K r⌉-th largest of theirs.

    losses: B × K, of assumed negatives. Where there are fewer unobserved entries than that, t is 0;
    entries without a loss are then still left alone.
    """
    unobserved = observed < 0
    u = (losses * unobserved).detach()
    # Rounded first: ⌈1000 × 0.003⌉ must be 3 whatever the last bit of the product is.
    k = min(math.ceil(round(u.numel() * rate, 6)), u.numel())
    if k < 1:
        return torch.zeros_like(unobserved), u.new_full((), torch.inf)
    t = u.flatten().topk(k).values[-1]
    return unobserved & (u >= t) & (u > 0), t


# ------------------------------------------------------------------------------- estimated labels


class EstimatedLabelsMethod(PartialMethod):
    """ROLE: a label matrix E = σ(U) with a row for every training row is learnt beside the network,
    each made to agree with the other, with what is observed, and with κ positives in a row."""

    @dataclass(frozen=True)
    class Config(PartialMethod.Config):
        kappa: float | None = option(None, KAPPA)
        label_lr: float = option(
            10.0,
            "learning rate of U, in multiples of the network's",
            search=between(1.0, 30.0, log=True),
        )

    def setup(self, pools: Pools) -> None:
        super().setup(pools)
        self.kappa = expected_positives(self.config.kappa, pools.labelled)
        self.estimates = initial_estimates(self.all_observed(pools))  # U
        self.squares = torch.zeros_like(self.estimates)
        self.seen = torch.zeros(len(self.estimates), device=self.estimates.device)
        self.count = torch.zeros((), device=self.estimates.device)

    def step(self, labelled: Batch, unlabelled: Batch | None, update: Update) -> dict[str, Tensor]:
        logits, observed = self.together(labelled, unlabelled)
        rows = self.positions(labelled, unlabelled)
        estimates = self.estimates[rows].requires_grad_()
        # Each half sees the other as a constant, so they are two losses with two gradients.
        network = agreement(logits, estimates, observed, self.kappa)
        labels = agreement(estimates, logits, observed, self.kappa)
        update.backward(network)
        (gradient,) = torch.autograd.grad(labels, estimates)
        self.count += 1
        lr = self.config.label_lr * update.lr
        adam_rows_(self.estimates, self.squares, self.seen, rows, gradient, self.count, lr)
        return {"network": network, "estimates": labels.detach()}

    def pseudo_labels(self) -> tuple[Tensor, Tensor] | None:
        if not self.unlabelled_views:
            return None
        estimated = self.estimates[self.n_labelled :].sigmoid()
        return estimated, torch.ones_like(estimated)


def initial_estimates(observed: Tensor) -> Tensor:
    """U: uniform in ±logit(0.6) where unobserved, else ±logit(0.995) by the label. N × K."""
    # Drawn on the CPU: every device starts from the same numbers.
    uniform = torch.rand(observed.shape).to(observed.device)
    sure = math.log(0.995 / 0.005)
    unobserved = math.log(0.6 / 0.4) * (2 * uniform - 1)
    return unobserved.masked_fill(observed == 1, sure).masked_fill(observed == 0, -sure)


def agreement(logits: Tensor, other: Tensor, observed: Tensor, kappa: Tensor) -> Tensor:
    """One half of ROLE's loss: what `logits` pay for the observed labels, for the other half's
    probabilities (constants here), and for missing κ."""
    positive, negative = nl_positive(logits), nl_negative(logits)
    target = other.detach().sigmoid()
    # 1 [observed] and the other's probability, both as weights of the same two logarithms.
    entries = (target + (observed == 1)) * positive + (1 - target + (observed == 0)) * negative
    return (entries.mean() + positives_penalty(logits, kappa)) / 2


@torch.no_grad()
def adam_rows_(
    weights: Tensor,
    squares: Tensor,
    seen: Tensor,
    rows: Tensor,
    gradient: Tensor,
    count: Tensor,
    lr: float,
    beta: float = 0.999,
    eps: float = 1e-8,
) -> None:
    """Adam with β₁ = 0 on a table of which a step sees a few rows, at the cost of those rows.

    A row without a gradient does not move and its second moment decays, which can wait until it is
    seen again: this is what a pass over the whole table would do. (Momentum would spread the same
    move over the ten steps that follow, in which the row is hardly ever seen.)
    weights, squares: N × K; seen: N, the step at which a row was last seen; gradient: B × K.
    """
    # A row that is twice in a batch gets the sum of its gradients, written twice.
    same = rows[:, None] == rows[None]
    gradient = same.to(gradient) @ gradient
    decay = beta ** (count - seen[rows])[:, None]
    square = decay * squares[rows] + (1 - beta) * gradient**2
    seen[rows] = count
    squares[rows] = square
    weights[rows] -= lr * gradient / ((square / (1 - beta**count)).sqrt() + eps)
