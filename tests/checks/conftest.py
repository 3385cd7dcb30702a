"""What the tests of the conformance suites share."""

from __future__ import annotations

import numpy as np
import pytest

from ssmlbench.protocol.sealed import SealedTruth


@pytest.fixture
def leaked_truths(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """A leak: the hidden labels of every run that is made from now on, for a plugin that peeks."""
    leaked: list[np.ndarray] = []
    sealed = SealedTruth.__init__

    def leaking(self: SealedTruth, truth: np.ndarray) -> None:
        leaked.append(truth)
        sealed(self, truth)

    monkeypatch.setattr(SealedTruth, "__init__", leaking)
    return leaked
