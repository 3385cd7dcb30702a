"""What methods for partial labels share: an entry's target and weight by its code (1 positive, 0 known
negative, -1 unobserved), the two readings of unlabelled rows, and the state that a few of them keep
for every row. The methods themselves are files in methods/.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ssmlbench.core.hyperparameters import between, choice, option
from ssmlbench.kit.families.row_adam import adam_rows_
from ssmlbench.kit.gradient_step import GradientStep
from ssmlbench.kit.method import Method, summed
from ssmlbench.kit.pools import Batch, Pool, Pools

KAPPA = (
    "κ: expected positives of a row; none takes the prior's sum, which is the labelled rows' mean "
    "in semi and full. Give it in single-positive (the sum is then at most 1) and partial-positive"
)
EPSILON = 1e-5


# ------------------------------------------------------------------------------- entry losses


def soft_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """t nl(p) + (1 - t) nl(1 - p), where nl(t) = -log(t + 1e-5) is Cole et al.'s: bounded at 0."""
    return soft_loss_of(logits.sigmoid(), logits, targets)


def soft_loss_of(p: Tensor, logits: Tensor, targets: Tensor) -> Tensor:
    """The same where p = σ(logits) is at hand already."""
    # 1 - p without the subtraction that would round a small one away.
    q = (-logits).sigmoid()
    return -torch.lerp((q + EPSILON).log(), (p + EPSILON).log(), targets.to(logits))


def coded_loss(
    p: Tensor,
    logits: Tensor,
    observed: Tensor,
    target: Tensor | float,
    weight: Tensor | float = 1.0,
    positive: float = 1.0,
) -> Tensor:
    """Each entry's soft cross-entropy by what is known of it, B × K; p = σ(logits).

    target, weight: of unobserved entries; positive: the target of observed positives. A known
    negative has the target 0, and what is known has the weight 1.
    """
    unobserved = observed < 0
    known = positive * observed
    entries = soft_loss_of(p, logits, torch.where(unobserved, target, known))
    if isinstance(weight, float) and weight == 1:
        return entries
    return entries * torch.where(unobserved, weight, 1.0)


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

    A method says what an unobserved entry is learnt as, and what else it changes.
    """

    regimes = frozenset({"semi", "single-positive", "partial-positive", "full"})
    warm_up = False

    @dataclass(frozen=True)
    class Config(Method.Config):
        reading: Literal["an", "lab"] = option(
            "an", "unlabelled rows in semi: an, all their entries are unobserved; lab, left out"
        )

    def __init__(self, config: Any, labels: int):
        super().__init__(config, labels)
        if config.reading == "lab":
            self.unlabelled_views = ()

    def setup(self, pools: Pools) -> None:
        self.n_labelled = len(pools.labelled)

    def unobserved(self, p: Tensor) -> tuple[Tensor | float, float]:
        """The target and the weight of unobserved entries, whose probabilities are p."""
        raise NotImplementedError(f"{type(self).__name__} must define unobserved or entry_loss")

    def positive(self) -> float:
        """The target of observed positives."""
        return 1.0

    def entry_loss(self, logits: Tensor, observed: Tensor) -> Tensor:
        """B × K."""
        p = logits.sigmoid()
        return coded_loss(p, logits, observed, *self.unobserved(p), self.positive())

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

    def unobserved(self, p: Tensor) -> tuple[float, float]:
        return 0.0, 1.0

    def norm(self, weight: Tensor) -> Tensor:
        """The norm of the classifier's weights that is kept small."""
        raise NotImplementedError(f"{type(self).__name__} must define norm")

    def step(
        self, labelled: Batch, unlabelled: Batch | None, update: GradientStep
    ) -> dict[str, Tensor]:
        terms = self.loss(labelled, unlabelled)
        terms["weights"] = self.weight_penalty(update.network.head.get_parameter("weight"))
        update.backward(summed(terms))
        return terms

    def weight_penalty(self, weight: Tensor) -> Tensor:
        """λ times the norm of the classifier's weights, K × D."""
        return self.config.penalty * self.norm(weight)


# ------------------------------------------------------------------------------- large losses


class LargeLossMethod(PartialMethod):
    """Unobserved entries are assumed negative; those with the largest losses are doubted."""

    paper = (
        "Kim et al., Large Loss Matters in Weakly Supervised Multi-Label Classification, CVPR 2022"
    )
    differences = (
        "Δ_rel is stretched over the run: its last epoch doubts what the paper's tenth does "
        "(delta_epochs=none: Δ_rel per epoch as it stands)",
        "a threshold of 0, which would doubt every entry, doubts no entry whose loss is 0",
    )

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

    paper = "Cole et al., Multi-Label Learning from Single Positive Labels, CVPR 2021"
    differences = (
        "known negatives have nl(1 - p) and nl(1 - E), as observed positives have nl(p) and nl(E); "
        "the paper's regime has none",
        "U has Adam without momentum, row by row (β₁ = 0): equal total moves at the cost of the "
        "batch's rows. Released: one Adam over the whole matrix at every step",
        "κ is the mean over labelled rows in semi; the paper knows it beforehand",
    )

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

    def step(
        self, labelled: Batch, unlabelled: Batch | None, update: GradientStep
    ) -> dict[str, Tensor]:
        logits, observed = self.together(labelled, unlabelled)
        rows = self.positions(labelled, unlabelled)
        both = torch.stack([logits.detach(), self.estimates.index_select(0, rows)])
        (network, labels), gradients = agreement(both, observed, self.kappa)
        update.backward((gradients[0] * logits).sum())  # the network's goes on from its logits
        self.count.add_(1)
        lr = self.config.label_lr * update.lr
        adam_rows_(self.estimates, self.squares, self.seen, rows, gradients[1], self.count, lr)
        return {"network": network, "estimates": labels}

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


def agreement(logits: Tensor, observed: Tensor, kappa: Tensor) -> tuple[Tensor, Tensor]:
    """The two halves of ROLE's loss: what each of two tables of logits pays for the observed labels,
    for the other's probabilities (constants to it), and for missing κ. And each one's gradient, here
    in closed form: these tables are small, and autograd's bookkeeping would cost more than they do.

    logits: 2 × B × K, the network's and U; observed: B × K. Out: 2, and 2 × B × K.
    """
    probabilities = torch.stack([logits, -logits]).sigmoid()  # p and 1 - p: 2 × 2 × B × K
    observed_as = torch.stack([observed == 1, observed == 0]).to(logits)
    # 1 [observed] and the other's probability, both as weights of the same two logarithms.
    weights = probabilities.flip(1) + observed_as[:, None]
    bounded = probabilities + EPSILON
    entries, n = (weights * bounded.log()).sum((0, 2, 3)), observed.numel()
    p, q = probabilities
    missing = p.sum((1, 2)) / n - kappa / observed.shape[1]
    pull, push = weights / bounded
    slopes = (push - pull) / (2 * n) + (missing / n)[:, None, None]
    return (missing**2 - entries / n) / 2, slopes * p * q  # dp / dz = p q
