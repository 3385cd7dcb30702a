"""A stored estimator names classes of scikit-learn and of the kit, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ssmlbench.training.estimator_state import restore_estimator


def test_a_class_that_a_module_of_scikit_learn_imports_is_refused(tmp_path: Path) -> None:
    """It would be called with arguments of its choice when a kept model is read."""
    from sklearn.datasets import _openml

    assert isinstance(_openml.TemporaryDirectory, type)
    stored = {
        "fitted on": {"list": []},
        "class": "sklearn.datasets._openml.TemporaryDirectory",
        "parameters": {"dict": [["dir", str(tmp_path)]]},
    }
    estimator: Any = SimpleNamespace()
    with pytest.raises(ValueError, match="which is no class of theirs"):
        restore_estimator(estimator, {}, json.dumps({"model": stored}))
