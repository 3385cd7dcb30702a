"""Entry-wise losses: B × K in, B × K out. Reduction is the method's choice.

All take logits, and stay finite for any finite logit in float32 and bfloat16.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

MAX_COSINE = 1 - 1e-6
"""arccos has an infinite slope at ±1."""


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
