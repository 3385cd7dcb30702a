"""Comparison with the numbers of the verification vectors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

TOLERANCE = 2e-5  # what the vectors were verified to


def close(found: Tensor, expected: Any, tolerance: float = TOLERANCE) -> None:
    """Assert that a tensor has these values, and their shape."""
    wanted = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found.double(), wanted, atol=tolerance, rtol=0)
