"""The methods' formulas once more, written as the papers print them: double precision, label by label.

Nothing here is fast, and nothing is shared with the code that it checks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

EPSILON = 1e-5


def nl(t: Tensor) -> Tensor:
    """-log(t + 1e-5)."""
    return -torch.log(t + EPSILON)


def cross_entropy(z: Tensor, y: Tensor) -> Tensor:
    """log(1 + exp(z)) - z y."""
    return torch.logaddexp(z, torch.zeros_like(z)) - z * y


def soft(p: Tensor, t: Tensor | float) -> Tensor:
    """t nl(p) + (1 - t) nl(1 - p)."""
    return t * nl(p) + (1 - t) * nl(1 - p)


def asl(z: Tensor, y: Tensor, gamma_negative: float, gamma_positive: float, clip: float) -> Tensor:
    """-[y log p + (1 - y) log q] (1 - pt)^g, the power a constant."""
    p = torch.sigmoid(z)
    q = torch.minimum(1 - p + clip, torch.ones_like(p))
    pt = y * p + (1 - y) * q
    g = y * gamma_positive + (1 - y) * gamma_negative
    return -(y * torch.log(p) + (1 - y) * torch.log(q.clamp(min=1e-8))) * ((1 - pt) ** g).detach()


# ------------------------------------------------------------------------------- CAP


def class_aware(
    scores: Tensor, prior: Sequence[float], positive_share: float, negative_share: float
) -> tuple[Tensor, Tensor]:
    """Pseudo-labels and mask by the places that CAP counts; a count of 0 takes nobody."""
    n = len(scores)
    labels, mask = torch.zeros_like(scores), torch.zeros_like(scores)
    for k, share in enumerate(prior):
        column = scores[:, k]
        down = sorted(column.tolist(), reverse=True)
        places = (int(share * n), int(positive_share * share * n))
        low = int(negative_share * (1 - share) * n)
        for i, score in enumerate(column.tolist()):
            labels[i, k] = places[0] > 0 and score >= down[places[0] - 1]
            sure = places[1] > 0 and score >= down[places[1] - 1]
            mask[i, k] = sure or (low > 0 and score <= down[::-1][low - 1])
    return labels, mask


# ------------------------------------------------------------------------------- BBAM


def angle(a: Tensor, b: Tensor) -> float:
    """Between two vectors."""
    cosine = float(a @ b / (a.norm() * b.norm()))
    return math.acos(max(-1 + 1e-6, min(1 - 1e-6, cosine)))


def bbam_epoch(
    features: Tensor,
    labels: Tensor,
    eta: float | None,
    gamma: float | None,
    old: list[dict[str, list[float]]] | None,
    lowered: bool,
) -> tuple[Tensor, list[dict[str, list[float]]]]:
    """β of both pools, and each label's (μ, var) of negatives and positives.

    labels: 1, 0, or -1 where the mask leaves an entry out. gamma: None for the paper's statistics, of
    sampled negatives; else the released ones. lowered: #pos is counted as the sum of 1, 0 and -1.
    """
    rows, count = labels.shape
    kept, found = torch.zeros_like(labels), []
    for k in range(count):
        positives = [i for i in range(rows) if labels[i, k] == 1]
        negatives = [i for i in range(rows) if labels[i, k] == 0]
        centre = sum((features[i] for i in positives), torch.zeros_like(features[0]))
        centre = centre / max(len(positives), 1)
        empty = not positives
        phi = [math.pi / 2 if empty else angle(features[i], centre) for i in range(rows)]
        nearest = sorted(negatives, key=lambda i: phi[i])
        number = len(positives) - (int((labels[:, k] == -1).sum()) if lowered else 0)
        wanted = len(negatives)
        if eta is not None and int(eta * number) > 0:
            wanted = min(int(eta * number), len(negatives))
        reach = phi[nearest[wanted - 1]] if nearest else 0.0
        sampled = [i for i in nearest if phi[i] <= reach + 1e-12]
        kept[[*positives, *sampled], k] = 1
        groups = {"n": negatives if gamma is not None else sampled, "p": positives}
        stats = {}
        for name, members in groups.items():
            angles = [phi[i] for i in members]
            if gamma is None:
                mean = sum(angles) / max(len(angles), 1)
                variance = sum((a - mean) ** 2 for a in angles) / max(len(angles) - 1, 1)
            else:
                before = old[k][name] if old else [0.0, 0.0]
                mean = (1 - gamma) * sum(angles) / (len(angles) + 1e-5) + gamma * before[0]
                variance = sum((a - mean) ** 2 for a in angles) / max(len(angles) - 1, 1)
                variance = (1 - gamma) * variance + gamma * before[1]
            stats[name] = [mean, variance]
        found.append(stats)
    return kept, found


def bbam_entries(
    cosines: Tensor,
    labels: Tensor,
    found: list[dict[str, list[float]]] | None,
    s: float,
    m: float,
    margin: str,
) -> Tensor:
    """l(cos ψ(θ), y); found: None before there are statistics."""
    entries = []
    for k in range(cosines.shape[1]):
        c, y = cosines[:, k], labels[:, k]
        if found is not None:
            (mn, vn), (mp, vp) = found[k]["n"], found[k]["p"]
            v, balanced = (vn + vp) / 2, vn > 0 and vp > 0
            an = math.sqrt(v / vn) if balanced else 1.0
            ap = math.sqrt(v / vp) if balanced else 1.0
            theta = torch.acos(c)
            psi = torch.where(y == 1, ap * theta + (1 - ap) * mp, an * theta + (1 - an) * mn)
            c = torch.cos(psi)
        positive = -torch.log(torch.sigmoid(s * (c - m)))
        negative = -torch.log(1 - torch.sigmoid(s * (c - (m if margin == "both" else 0.0))))
        entries.append(torch.where(y == 1, positive, negative))
    return torch.stack(entries, dim=1)


# ------------------------------------------------------------------------------- EM + APL


def lowest_unknown(scores: Tensor, unknown: Tensor, counts: Sequence[int]) -> Tensor:
    """The counts_k lowest-scored unknown entries of each label; of equal ones the first rows."""
    chosen = torch.zeros_like(unknown)
    for k, n in enumerate(counts):
        rows = [i for i in range(len(scores)) if unknown[i, k]]
        for i in sorted(rows, key=lambda i: float(scores[i, k]))[:n]:
            chosen[i, k] = True
    return chosen


# ------------------------------------------------------------------------------- ROLE, LL


def role(z: Tensor, u: Tensor, observed: Tensor, kappa: float) -> Tensor:
    """The whole of ROLE's loss, with observed negatives beside observed positives."""
    p, e = torch.sigmoid(z), torch.sigmoid(u)
    known = torch.where(
        observed == 1, nl(p) + nl(e), torch.where(observed == 0, nl(1 - p) + nl(1 - e), 0.0)
    )
    cross = soft(p, e.detach()) + soft(e, p.detach())
    penalty = (p.sum(1).mean() - kappa) ** 2 + (e.sum(1).mean() - kappa) ** 2
    return known.mean() / 2 + cross.mean() / 2 + penalty / 2 / z.shape[1] ** 2


def large_loss(z: Tensor, observed: Tensor, k: int, scheme: str) -> Tensor:
    """LL-R or LL-Ct: entries whose loss reaches the k-th largest of the unobserved."""
    positive = (observed == 1).to(z)
    entries = cross_entropy(z, positive)
    u = torch.where(observed < 0, entries, 0.0).detach()
    if k < 1:
        return entries
    t = sorted(u.flatten().tolist(), reverse=True)[min(k, u.numel()) - 1]
    doubted = (observed < 0) & (u >= t) & (u > 0)
    if scheme == "reject":
        return torch.where(doubted, 0.0, entries)
    return torch.where(doubted, cross_entropy(z, 1 - positive), entries)


# ------------------------------------------------------------------------------- MAT


def best_threshold(
    scores: Sequence[float], truth: Sequence[int], beta: float, weight: float
) -> float:
    """The smallest t of 0, .01, …, .99 with the largest (1 + β²) P R / (weight P + R); inf if all are 0."""
    best, found = 0.0, math.inf
    for step in range(100):
        t = step / 100
        taken = [y for s, y in zip(scores, truth, strict=True) if s >= t]
        hits = sum(taken)
        if hits == 0:
            continue
        p, r = hits / len(taken), hits / sum(truth)
        value = (1 + beta**2) * p * r / (weight * p + r)
        if value > best + 1e-12:
            best, found = value, t
    return found
