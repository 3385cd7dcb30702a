"""An estimator's run: fit once on fixed features, then score. It needs no checkpoint."""

from __future__ import annotations

import time

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from ssmlbench.core.events import EpochEnded, Notify
from ssmlbench.core.seeds import stream, stream_seed
from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs.splits import RowNumbers, SplitInputs
from ssmlbench.kit.estimator import Estimator, FeaturePool, Features
from ssmlbench.protocol.diagnostics import Float32Array
from ssmlbench.protocol.judge import checked_scores
from ssmlbench.training.device import peak_memory, reset_peak_memory
from ssmlbench.training.evaluation import Trained
from ssmlbench.training.run_data import RunData

CHUNK_ROWS = 8192
CHUNK_ENTRIES = 2**23
"""Most rows × labels that are scored at a time: a forest takes some 50 bytes for each."""


def estimator_seed(spec: RunSpec) -> int:
    """The seed of the run's estimator, of the 32 bits that scikit-learn takes."""
    return stream_seed(spec.seed, "estimator") % 2**32


def run_estimator(
    spec: RunSpec, estimator: Estimator, run_data: RunData, notify: Notify = lambda event: None
) -> Trained:
    """Fit on the training rows, and hand the judge the scores of training rows and test rows."""
    device = torch.device("cpu")
    reset_peak_memory(device)
    began = time.perf_counter()
    # BLAS and OpenMP get as many threads as the run: the number changes the last bits.
    with threadpool_limits(torch.get_num_threads()):
        unlabelled = run_data.rows["unlabelled"]
        if estimator.uses != "both pools":
            unlabelled = unlabelled[:0]
        pools = [_pool(run_data, rows) for rows in (run_data.rows["labelled"], unlabelled)]
        estimator.fit(*pools)
        seconds = time.perf_counter() - began
        train_rows = np.concatenate(list(run_data.rows.values()))
        train_scores = _scores(estimator, run_data.train, train_rows)
        test_scores = _scores(estimator, run_data.test, np.arange(len(run_data.test)))
    row = {
        "epoch": 1,
        "phase": "fit",
        "steps": 0,
        "seconds": seconds,
        "peak_memory_mb": peak_memory(device),
    }
    run_data.judge.hand_in(1, train_scores, test_scores)
    notify(EpochEnded(1, 1, {}))
    return Trained(steps=0, history=[row], network=None, precision=spec.precision)


def _pool(run_data: RunData, rows: RowNumbers) -> FeaturePool:
    observation = run_data.observation
    return FeaturePool(
        features_of(run_data.train, rows), observation.labels[rows], observation.prior.copy()
    )


def features_of(inputs: SplitInputs, rows: RowNumbers) -> Features:
    """The plain view of some rows, N × D float32."""
    features: Features | None = None
    for start in range(0, max(len(rows), 1), CHUNK_ROWS):
        part = rows[start : start + CHUNK_ROWS]
        view = inputs.view(part, "plain", stream(0, "plain features")).float().numpy()
        if features is None:
            features = np.empty((len(rows), *view.shape[1:]), dtype=np.float32)
        features[start : start + CHUNK_ROWS] = view
    assert features is not None
    return features


def scored_at_a_time(labels: int) -> int:
    """Rows that an estimator scores in one call."""
    return max(min(CHUNK_ROWS, CHUNK_ENTRIES // labels), 1)


def _scores(estimator: Estimator, inputs: SplitInputs, rows: RowNumbers) -> Float32Array:
    """The estimator's scores of some rows, a chunk at a time."""
    if not len(rows):  # a run without judged rows: scikit-learn refuses to score none
        return np.zeros((0, estimator.labels), dtype=np.float32)
    scores = np.empty((len(rows), estimator.labels), dtype=np.float32)
    chunk = scored_at_a_time(estimator.labels)
    for start in range(0, len(rows), chunk):
        part = rows[start : start + chunk]
        raw = estimator.scores(features_of(inputs, part))
        shape = (len(part), estimator.labels)
        scores[start : start + chunk] = checked_scores(raw, shape, estimator.name)
    return scores
