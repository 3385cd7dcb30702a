"""Pseudo-labels: class-aware ones over a whole pool, and each entry's own confidence in a step.

Vectorised over labels; nothing here waits for the device.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ssmlbench.kit.losses import bce

BLOCK_ENTRIES = 2**22
"""Rows × labels that are worked on at a time: 16 MB in single precision."""


def class_aware_labels(
    scores: Tensor, prior: Tensor, positive_share: float = 1.0, negative_share: float = 0.998
) -> tuple[Tensor, Tensor]:
    """CAP's rule: per label, the best-scored π_k of the rows are positive. Both outputs N × K.

    scores: N × K, any increasing function of the model's confidence; prior: K, π_k.
    targets: 1 where the score reaches the int(π_k N)-th best, ties included.
    trust: 1 for the best int(η⁺ π_k N) and the worst int(η⁻ (1 - π_k) N) rows, else 0.
    A label whose count truncates to zero gets no positive. (The released index is then -1, which
    makes every row positive.)
    """
    targets, sure = _ranked_labels(scores, prior, positive_share, negative_share)
    return targets.to(scores), sure.to(scores)


def _ranked_labels(
    scores: Tensor, prior: Tensor, positive_share: float, negative_share: float
) -> tuple[Tensor, Tensor]:
    """`class_aware_labels` as bool."""
    n = len(scores)
    if not n:
        return torch.zeros_like(scores).bool(), torch.zeros_like(scores).bool()
    prior = _double(prior)
    positives = (prior * n).long()
    trusted_positives = (positive_share * prior * n).long()
    trusted_negatives = (negative_share * (1 - prior) * n).long()
    # The m-th smallest is the (n + 1 - m)-th largest.
    places = torch.stack([positives, trusted_positives, n + 1 - trusted_negatives])
    positive, sure_positive, sure_negative = nth_largest(scores, places)
    targets = scores >= positive.where(positives > 0, torch.inf)
    sure = scores >= sure_positive.where(trusted_positives > 0, torch.inf)
    sure |= scores <= sure_negative.where(trusted_negatives > 0, -torch.inf)
    return targets, sure


def pooled_class_aware_labels(
    scores: Tensor, prior: Tensor, positive_share: float = 1.0, negative_share: float = 0.998
) -> tuple[Tensor, Tensor, Tensor]:
    """`class_aware_labels` of a large pool, both N × K int8, and their `tied_positives`.

    A quarter of the memory, and no floats are made on the way.
    """
    targets, trust = (
        torch.empty(scores.shape, dtype=torch.int8, device=scores.device) for _ in range(2)
    )
    tied = torch.zeros((), dtype=torch.long, device=scores.device)
    for labels in label_blocks(*scores.shape):
        block = scores[:, labels].contiguous()  # worked on faster than part of each row
        made, sure = _ranked_labels(block, prior[labels], positive_share, negative_share)
        tied += tied_positives(made, prior[labels]).long()
        targets[:, labels], trust[:, labels] = made, sure
    return targets, trust, tied.float()


def tied_positives(targets: Tensor, prior: Tensor) -> Tensor:
    """The number of CAP's pseudo-positives beyond the quotas of the labels: tied scores cause them.

    targets: N × K, from `class_aware_labels`. Few distinct scores make many ties.
    """
    quota = (_double(prior) * len(targets)).long()
    return (targets.sum(0, dtype=torch.int32) - quota).clamp(min=0).sum().float()


def descending(scores: Tensor) -> Tensor:
    """Each column of N × K scores from its largest value to its smallest."""
    if scores.device.type != "cpu":
        return scores.sort(dim=0, descending=True).values
    # numpy sorts values alone, ten times as fast as torch, which always carries their indices.
    columns = np.sort(scores.detach().T.contiguous().numpy(), axis=1)
    return torch.from_numpy(columns).flip(1).T


def nth_largest(scores: Tensor, places: Tensor) -> Tensor:
    """Values of N × K scores by their place in their column, 1 the largest. places and out: … × K.

    A place outside 1 to N counts as the nearest one inside.
    """
    wanted = places.reshape(-1, scores.shape[1]).clamp(1, len(scores)) - 1
    found = torch.empty(wanted.shape, dtype=scores.dtype, device=scores.device)
    for labels in label_blocks(*scores.shape):
        columns = scores[:, labels].detach()
        if scores.device.type == "cpu":
            found[:, labels] = _partitioned(columns, wanted[:, labels])
        else:
            ranked = columns.sort(dim=0, descending=True).values
            found[:, labels] = ranked.gather(0, wanted[:, labels])
    return found.reshape(places.shape)


def _partitioned(columns: Tensor, places: Tensor) -> Tensor:
    """`nth_largest` by numpy's partition of values alone; torch would sort all, and their indices."""
    ascending = (len(columns) - 1 - places.T).numpy()
    values = columns.T.contiguous().numpy()
    picked = [np.partition(v, np.unique(at))[at] for v, at in zip(values, ascending, strict=True)]
    return torch.from_numpy(np.stack(picked, axis=1))


def label_blocks(rows: int, labels: int) -> list[slice]:
    """The labels in slices of BLOCK_ENTRIES entries, so that temporary tensors stay small."""
    width = max(BLOCK_ENTRIES // max(rows, 1), 1)
    return [slice(start, min(start + width, labels)) for start in range(0, labels, width)]


def _double(prior: Tensor) -> Tensor:
    """The prior in double precision, but for MPS: int(0.3 × 10) must not depend on the device."""
    return prior if prior.device.type == "mps" else prior.double()


def confident_targets(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """Each entry by itself: the target [q ≥ ½], and the confidence max(q, 1 - q) in it."""
    return (probabilities >= 0.5).to(probabilities), torch.maximum(probabilities, 1 - probabilities)


def momentum_at(updates: Tensor, m: float, averages: str) -> float | Tensor:
    """The momentum of a running average that was updated `updates` times before.

    averages "fitted": min(m, (1 + t) / (10 + t)), as the average of the weights has it. It suits runs of
    any length: an average that starts at a constant and always has m = 0.999 is still near its start
    after some hundred steps. "paper": m.
    """
    return ((1 + updates) / (10 + updates)).clamp(max=m) if averages == "fitted" else m


def moved_thresholds(tau: Tensor, confidence: Tensor, m: float | Tensor) -> Tensor:
    """τ_k ← m τ_k + (1 - m) mean_i conf_ik: FreeMatch's threshold of each label."""
    return m * tau + (1 - m) * confidence.mean(0)


def consistency(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """The mean of the weighted BCE over all entries: an entry of weight 0 counts as zero."""
    return (weights * bce(logits, targets)).mean()


def usage(targets: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """The mean weight of a batch's pseudo-positives and of its pseudo-negatives, as diagnostics.

    With a mask these are the shares that are used. Sparse labels make negatives confident long
    before positives, which no mean over all entries would show.
    """
    negatives = 1 - targets
    return {
        "used_positives": (weights * targets).sum() / targets.sum().clamp(min=1),
        "used_negatives": (weights * negatives).sum() / negatives.sum().clamp(min=1),
    }
