"""D2L + MAT: separate classifiers for labels and pseudo-labels, thresholds tuned on labelled rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ssmlbench.api import (
    POOL_RATIO,
    Batch,
    Method,
    Network,
    Pools,
    RowOutputs,
    asymmetric_loss,
    between,
    option,
    pool_weight,
)

PATCHES = 4  # of a row, in the "-patches" views


class D2lMat(Method):
    """Pseudo-labels train separate heads: their errors do not reach the heads that predict them."""

    name = "d2l_mat"
    paper = (
        "Xiao et al., Dual-Decoupling Learning and Metric-Adaptive Thresholding for "
        "Semi-Supervised Multi-Label Learning, ECCV 2024"
    )
    regimes = {"semi"}
    differences = (
        "losses are summed, so that each pool weighs as many as its rows: 32 + 64 rows are 1 : 2; the "
        "released batches at π = 0.05 are 4 + 60, 1 : 15 (pool_ratio=15)",
        "ASL has log p; the released loss has log max(p, 1e-8), which gives an observed positive with a "
        "smaller p no gradient",
        "F_β: (1 + β²) P R / (β² P + R) (its definition); the released code has β P + R "
        "(f_score=released)",
        "a label without a labelled positive has no best threshold: it gets no pseudo-positive",
        "patches exist where the data are images; elsewhere only the two heads of whole rows learn",
        "nothing is selected on the reported set (released: it is, with early stopping)",
    )

    @dataclass(frozen=True)
    class Config(Method.Config):
        beta: float = option(
            0.5,
            "β of F_β, which each label's threshold maximises",
            search=between(0.25, 2.0, log=True),
        )
        f_score: Literal["standard", "released"] = option("standard", "the form of F_β")
        gamma_negative: float = option(4.0, "γ⁻ of ASL", search=between(1.0, 6.0))
        gamma_positive: float = option(0.0, "γ⁺ of ASL")
        clip: float = option(0.05, "ASL's probability shift of negatives")
        unlabelled_weight: float = option(
            1.0, "λ: weight of the two unlabelled terms", search=between(0.1, 10.0, log=True)
        )
        pool_ratio: float | None = option(None, POOL_RATIO)

    def build_head(self, width: int) -> nn.Module:
        return FourHeads(width, self.labels)

    def setup(self, pools: Pools) -> None:
        self.patched = "strong-patches" in pools.views
        if self.patched:
            self.labelled_views = self.unlabelled_views = ("strong", "strong-patches")
        self.unlabelled_ema_views = ("weak", "weak-patches") if self.patched else ("weak",)

    def start_phase(self, network: Network) -> None:
        # Copied at the start of warm-up too, where it makes no difference.
        assert isinstance(network.head, FourHeads)
        network.head.inherit()

    def start_epoch(self, pools: Pools) -> None:
        scores = self.joint_scores(pools.labelled, "weak")
        released = self.config.f_score == "released"
        self.thresholds = best_thresholds(
            scores, pools.labelled.observed, self.config.beta, released
        )[0]

    def loss(self, labelled: Batch, unlabelled: Batch | None) -> dict[str, Tensor]:
        terms = self.terms(labelled, "", labelled.observed)
        if unlabelled is not None:
            whole = unlabelled.ema_outputs("weak")["logits"]
            patches = unlabelled.ema_outputs("weak-patches")["patch"] if self.patched else None
            targets = (joint_probabilities(whole, patches) >= self.thresholds).float()
            weight = self.config.unlabelled_weight
            weight *= pool_weight(self.config.pool_ratio, labelled, unlabelled)
            pseudo = self.terms(unlabelled, "pseudo_", targets)
            terms |= {name: weight * term for name, term in pseudo.items()}
            self.diagnostics = {"pseudo_positives": targets.mean()}
        return terms

    def terms(self, batch: Batch, heads: str, targets: Tensor) -> dict[str, Tensor]:
        logits = {batch.pool: batch.outputs("strong")[f"{heads}logits"]}
        if self.patched:
            patches = batch.outputs("strong-patches")[f"{heads}patch"]
            logits[f"{batch.pool}_patches"] = joined_patches(patches)
        losses = self.summed_loss(torch.stack(list(logits.values())), targets)
        return dict(zip(logits, losses, strict=True))

    def summed_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Over the rows and labels of … × B × K logits."""
        config = self.config
        return asymmetric_loss(
            logits, targets, config.gamma_negative, config.gamma_positive, config.clip
        ).sum((-2, -1))

    def joint_scores(self, rows: RowOutputs, view: str) -> Tensor:
        whole = rows.logits(model="ema", view=view)
        patches = rows.output("patch", "ema", f"{view}-patches") if self.patched else None
        return joint_probabilities(whole, patches)

    def test_scores(self, rows: RowOutputs) -> Tensor:
        return self.joint_scores(rows, "plain")


class FourHeads(nn.Module):
    """fc1, fc2 for labels and fc3, fc4 for pseudo-labels; of whole rows, and of their patches."""

    def __init__(self, width: int, labels: int):
        super().__init__()
        self.whole, self.patch, self.pseudo_whole, self.pseudo_patch = (
            nn.Linear(width, labels) for _ in range(4)
        )

    def inherit(self) -> None:
        """fc3 ← fc1, fc4 ← fc2."""
        self.pseudo_whole.load_state_dict(self.whole.state_dict())
        self.pseudo_patch.load_state_dict(self.patch.state_dict())

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        return {
            "logits": self.whole(features),
            "patch": self.patch(features),
            "pseudo_logits": self.pseudo_whole(features),
            "pseudo_patch": self.pseudo_patch(features),
        }


def joined_patches(logits: Tensor) -> Tensor:
    """4B × K, a row's patches together → B × K: their sum, weighted by their softmax."""
    patches: Tensor = logits.unflatten(0, (-1, PATCHES))
    return (patches.softmax(dim=1) * patches).sum(1)


def joint_probabilities(whole: Tensor, patches: Tensor | None) -> Tensor:
    """σ of the mean of the whole row's logits and its patches'; of the whole alone without them."""
    if patches is not None:
        whole = (whole + joined_patches(patches)) / 2
    return whole.sigmoid()


def best_thresholds(
    scores: Tensor, targets: Tensor, beta: float, released: bool = False
) -> tuple[Tensor, Tensor]:
    """MAT: per label the smallest t of 0, .01, …, .99 at which [score ≥ t] has the best F_β, and that F_β.

    scores, targets: N × K. One sort serves the whole grid: if the n lowest scores are below t, N - n
    rows are predicted, and their true positives are all positives less a running sum.
    """
    grid = torch.arange(100, device=scores.device, dtype=scores.dtype) / 100
    ranked, order = scores.T.contiguous().sort(dim=1)
    positive = (targets.T == 1).gather(1, order).to(scores)
    below = torch.searchsorted(ranked, grid.expand(len(ranked), -1).contiguous())  # K × 100
    running = torch.cat([torch.zeros_like(positive[:, :1]), positive.cumsum(1)], dim=1)
    total = running[:, -1:]
    found = total - running.gather(1, below)
    # (1 + β²) P R / (β² P + R) in counts: rounded once, so thresholds that are equally good tie.
    weighted = (beta if released else beta**2) * total + (len(scores) - below)
    f_beta = (1 + beta**2) * found / weighted.clamp(min=1e-12)
    best, where = f_beta.max(dim=1)
    return torch.where(best > 0, grid[where], torch.inf), best
