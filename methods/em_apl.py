"""EM + APL: entropy maximisation, then soft negative labels for the lowest-scored unknowns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ssmlbench.api import (
    Batch,
    EntropyMethod,
    Pools,
    between,
    coded_loss,
    label_blocks,
    nth_largest,
    option,
)

UNSET = -1.0
"""A soft label that was not given."""


class EmApl(EntropyMethod):
    """EM, and in later epochs each label's lowest-scored unknowns get their score as a soft label."""

    name = "em_apl"
    paper = (
        "Zhou et al., Acknowledging the Unknown for Multi-label Learning with Single Positive "
        "Labels, ECCV 2022"
    )
    differences = (
        "the paper's 5 of 10 epochs before the first soft labels are half of the run's epochs "
        "here; what each later epoch adds is planned for the epochs that remain, as released",
        "scores are of weak views, the closest to the authors' training transform (a mirror)",
        "a score of exactly 0 is a soft label; released, it would read as unknown",
        "made for single positives, where no negative is known. Under semi, labelled negatives "
        "keep their -log(1 - p); literal=true makes them unknown too",
        "the authors stop at the first epoch without a better validation score; here every epoch "
        "is run",
    )

    @dataclass(frozen=True)
    class Config(EntropyMethod.Config):
        beta: float = option(
            0.02,
            "β: weight of soft labels (VOC .02, COCO .9, NUS .2, CUB .4)",
            search=between(0.02, 0.9, log=True),
        )
        negative_share: float = option(
            0.9, "the part of a label's unknowns that ends soft-labelled"
        )
        warm_up_share: float = option(
            0.5, "the part of the epochs without soft labels", search=between(0.3, 0.5)
        )

    def setup(self, pools: Pools) -> None:
        super().setup(pools)
        known = self.known(self.all_observed(pools))
        rounds = pools.epochs - self.first_epochs(pools)
        self.quota = quota((known < 0).sum(0), self.config.negative_share, rounds)
        self.soft = torch.full_like(known, UNSET, dtype=torch.float)  # N × K, both pools

    def first_epochs(self, pools: Pools) -> int:
        share: float = self.config.warm_up_share
        return max(1, round(share * pools.epochs))

    def start_epoch(self, pools: Pools) -> None:
        if pools.epoch - 1 < self.first_epochs(pools):
            return
        trained = [pools.labelled, pools.unlabelled] if self.unlabelled_views else [pools.labelled]
        logits = [pool.logits(model="raw", view="weak") for pool in trained]
        tied = torch.zeros(self.labels, device=self.soft.device)
        for labels in label_blocks(*self.soft.shape):
            scores = torch.cat([each[:, labels] for each in logits]).sigmoid()
            observed = torch.cat([pool.observed[:, labels] for pool in trained])
            soft = self.soft[:, labels]
            unknown = (self.known(observed) < 0) & (soft == UNSET)
            chosen, tied[labels] = lowest(scores, unknown, self.quota[labels])
            # A soft label is never revised.
            self.soft[:, labels] = torch.where(chosen, scores, soft)
        self.diagnostics = {"tied_unknowns": tied.sum()}

    def loss(self, labelled: Batch, unlabelled: Batch | None) -> dict[str, Tensor]:
        logits, observed = self.together(labelled, unlabelled)
        soft = self.soft[self.positions(labelled, unlabelled)]
        return {"entries": self.soft_entry_loss(logits, observed, soft).mean()}

    def soft_entry_loss(self, logits: Tensor, observed: Tensor, soft: Tensor) -> Tensor:
        """EM's entries, but β times a soft cross-entropy where a soft label was given."""
        p, given = logits.sigmoid(), soft != UNSET
        target, entropy_weight = self.unobserved(p)
        target = torch.where(given, soft, target)
        weight = torch.where(given, self.config.beta, entropy_weight)
        return coded_loss(p, logits, self.known(observed), target, weight)

    def pseudo_labels(self) -> tuple[Tensor, Tensor] | None:
        if not self.unlabelled_views:
            return None
        soft = self.soft[self.n_labelled :]
        return soft.clamp(min=0), (soft != UNSET).float()


def quota(unknown: Tensor, share: float, rounds: int) -> Tensor:
    """n_k = int(share · U_k / rounds), U_k a label's unknown entries at the very start."""
    exact = share * unknown.cpu().double() / max(rounds, 1)
    return exact.long().to(unknown.device)


def lowest(scores: Tensor, unknown: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Of each label's unknown entries the counts_k lowest-scored, N × K bool.

    Of entries tied at the last place the first rows are taken; the second result, K, counts the rest.
    """
    scores = scores.masked_fill(~unknown, torch.inf)
    last = nth_largest(scores, len(scores) + 1 - counts).where(counts > 0, -torch.inf)
    below, tied = scores < last, (scores == last) & unknown
    early = tied.cumsum(0, dtype=torch.int32) <= counts - below.sum(0)
    return below | (tied & early), (tied & ~early).sum(0).to(scores)
