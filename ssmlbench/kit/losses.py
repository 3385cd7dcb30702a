"""Losses: B × K in, B × K out. Reduction is the method's choice; a penalty is one number.

All take logits, and stay finite for any finite logit in float32 and bfloat16.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

MAX_COSINE = 1 - 1e-6
"""arccos has an infinite slope at ±1."""
EPSILON = 1e-5
"""Bounds the logarithm of Cole et al.: nl(t) = -log(t + ε)."""


def bce(logits: Tensor, targets: Tensor) -> Tensor:
    """Binary cross-entropy; targets may be soft."""
    return F.binary_cross_entropy_with_logits(logits, targets.to(logits), reduction="none")


def asymmetric_loss(
    logits: Tensor,
    targets: Tensor,
    gamma_negative: float = 4.0,
    gamma_positive: float = 0.0,
    clip: float = 0.05,
) -> Tensor:
    """ASL (Ridnik et al., ICCV 2021), its focusing weight detached as in CAP's code.

    q = min(1 - p + clip, 1): easy negatives below `clip` cost nothing.
    """
    targets = targets.to(logits)
    p = logits.sigmoid()
    q = (1 + clip - p).clamp(max=1)
    log_q = F.logsigmoid(-logits) if clip == 0 else q.clamp(min=1e-8).log()
    entry = -torch.lerp(log_q, F.logsigmoid(logits), targets)
    with torch.no_grad():
        gamma = gamma_negative + (gamma_positive - gamma_negative) * targets
        weight = (1 - torch.lerp(q, p, targets)) ** gamma
    return entry * weight


def angles(cosines: Tensor) -> Tensor:
    """arccos, kept away from the two points where its slope is infinite."""
    return cosines.clamp(-MAX_COSINE, MAX_COSINE).arccos()


def soft_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Soft cross-entropy t nl(p) + (1 - t) nl(1 - p), where nl(t) = -log(t + ε) is bounded at t = 0."""
    return soft_loss_of(logits.sigmoid(), logits, targets)


def soft_loss_of(p: Tensor, logits: Tensor, targets: Tensor) -> Tensor:
    """The same where p = σ(logits) is already computed."""
    # 1 - p; the subtraction would round a small value to 0.
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
    """Each entry's soft cross-entropy, by its observed label, B × K; p = σ(logits).

    target, weight: of unobserved entries; positive: the target of observed positives. A known
    negative has the target 0, and a known entry has the weight 1.
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
