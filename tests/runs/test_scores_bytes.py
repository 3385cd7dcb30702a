"""Equal scores are equal files, so that two runs can be compared byte by byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from ssmlbench.runs import scores
from ssmlbench.runs.scores import StoredScores


def test_equal_scores_are_written_as_equal_bytes_and_read_back(tmp_path: Path) -> None:
    values = np.linspace(0, 1, 6, dtype=np.float32).reshape(3, 2)
    stored = StoredScores(
        values, values > 0.5, {"thresholds": np.ones(2)}, ["a", "b"], ["x", "y", "z"]
    )
    file = tmp_path / "scores.safetensors"
    written = set()
    for _ in range(20):
        stored.write(file)
        written.add(file.read_bytes())
    assert len(written) == 1
    read = StoredScores.read(tmp_path)
    assert (read.label_names, read.row_ids) == (["a", "b"], ["x", "y", "z"])
    assert (read.scores == values).all()


@pytest.mark.parametrize("density", [0.0, 0.002, 0.4])
def test_a_large_truth_is_stored_as_lists_where_they_are_smaller(
    density: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    truth = random.random((300, 200)) < density
    stored = StoredScores(random.random(truth.shape, dtype=np.float32), truth)
    file = tmp_path / "scores.safetensors"
    stored.write(file)
    small = file.stat().st_size
    assert "truth" in load_file(file)  # a small run's file is as it always was
    monkeypatch.setattr(scores, "SPARSE_ENTRIES", 1)
    stored.write(file)
    assert ("truth" in load_file(file)) == (density > 0.1)
    assert file.stat().st_size == small or small - file.stat().st_size > truth.size // 2
    found = StoredScores.read(tmp_path)
    np.testing.assert_array_equal(found.truth, truth)
    assert found.truth.dtype == bool
    np.testing.assert_array_equal(found.scores, stored.scores)
    assert found.parameters == {}


@pytest.mark.parametrize(("zeros", "sparse"), [(0.0, False), (0.5, False), (0.98, True)])
def test_large_scores_that_are_mostly_zero_are_stored_without_the_zeros_to_the_bit(
    zeros: float, sparse: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    values = random.random((300, 201), dtype=np.float32)
    values[random.random(values.shape) < zeros] = 0
    values[0, 0], values[1, 1] = -0.0, np.float32(1e-45)  # a zero with a sign, the smallest number
    stored = StoredScores(values, values > 0.9, {"thresholds": np.ones(201)})
    file = tmp_path / "scores.safetensors"
    stored.write(file)
    assert "scores" in load_file(file)  # a small run's file is as it always was
    monkeypatch.setattr(scores, "SPARSE_ENTRIES", 1)
    stored.write(file)
    assert ("scores" not in load_file(file)) == sparse
    found = StoredScores.read(tmp_path)
    assert found.scores.dtype == np.float32
    assert found.scores.tobytes() == values.tobytes()
    np.testing.assert_array_equal(found.truth, stored.truth)
    assert list(found.parameters) == ["thresholds"]
    if sparse:
        assert file.stat().st_size < values.nbytes / 4
