"""Equal scores are equal files, so that two runs can be compared byte by byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ssmlbench.runs.scores import StoredScores


def test_equal_scores_are_written_as_equal_bytes_and_read_back(tmp_path: Path) -> None:
    scores = np.linspace(0, 1, 6, dtype=np.float32).reshape(3, 2)
    stored = StoredScores(
        scores, scores > 0.5, {"thresholds": np.ones(2)}, ["a", "b"], ["x", "y", "z"]
    )
    file = tmp_path / "scores.safetensors"
    written = set()
    for _ in range(20):
        stored.write(file)
        written.add(file.read_bytes())
    assert len(written) == 1
    read = StoredScores.read(tmp_path)
    assert (read.label_names, read.row_ids) == (["a", "b"], ["x", "y", "z"])
    assert (read.scores == scores).all()
