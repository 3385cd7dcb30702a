"""An estimator's run: fit once on fixed features, then score. It needs no checkpoint."""

from __future__ import annotations

import time

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from ssmlbench.core.errors import RunFailed
from ssmlbench.core.events import EpochEnded, Notify
from ssmlbench.core.seeds import stream, stream_seed
from ssmlbench.core.spec import RunSpec
from ssmlbench.inputs.splits import RowNumbers, SplitInputs
from ssmlbench.kit.estimator import Estimator, FeaturePool, Features
from ssmlbench.protocol.decisions import fit_rules
from ssmlbench.training.device import peak_memory, reset_peak_memory
from ssmlbench.training.evaluation import Float32Array, Outcome
from ssmlbench.training.run_data import RunData

CHUNK_ROWS = 8192


def estimator_seed(spec: RunSpec) -> int:
    """The seed that an estimator of the run gets; scikit-learn takes 32 bits."""
    return stream_seed(spec.seed, "estimator") % 2**32


def run_estimator(
    spec: RunSpec, estimator: Estimator, run_data: RunData, notify: Notify = lambda event: None
) -> Outcome:
    """Fit on the training rows and score the test rows."""
    device = torch.device("cpu")
    reset_peak_memory(device)
    began = time.perf_counter()
    # The libraries behind scikit-learn get as many threads as the run: they change the last bits.
    with threadpool_limits(torch.get_num_threads()):
        everything = run_data.rows["unlabelled"]
        unlabelled = everything if estimator.uses == "both pools" else everything[:0]
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
    notify(EpochEnded(1, 1, {}))
    return Outcome(
        test_scores,
        fit_rules(train_scores, run_data.observation.prior),
        selected_epoch=1,
        steps=0,
        history=[row],
        network=None,
        precision=spec.precision,
    )


def _pool(run_data: RunData, rows: RowNumbers) -> FeaturePool:
    observation = run_data.observation
    return FeaturePool(
        features_of(run_data.train, rows), observation.labels[rows], observation.prior
    )


def features_of(inputs: SplitInputs, rows: RowNumbers) -> Features:
    """The plain view of some rows, N × D float32."""
    parts = [rows[i : i + CHUNK_ROWS] for i in range(0, max(len(rows), 1), CHUNK_ROWS)]
    views = [inputs.view(part, "plain", stream(0, "plain features")) for part in parts]
    return np.concatenate([view.float().numpy() for view in views])


def _scores(estimator: Estimator, inputs: SplitInputs, rows: RowNumbers) -> Float32Array:
    """The estimator's scores of some rows, a chunk at a time; an error if they are no scores."""
    parts = [rows[i : i + CHUNK_ROWS] for i in range(0, max(len(rows), 1), CHUNK_ROWS)]
    scores = [np.asarray(estimator.scores(features_of(inputs, part))) for part in parts]
    for part, found in zip(parts, scores, strict=True):
        expected = (len(part), estimator.labels)
        if found.shape != expected:
            raise RunFailed(
                f"scores of {estimator.name} have shape {found.shape}, expected {expected}"
            )
        if not np.isfinite(found).all() or (found.size and (found.min() < 0 or found.max() > 1)):
            raise RunFailed(f"scores of {estimator.name} are not all numbers in [0, 1]")
    return np.concatenate(scores).astype(np.float32)
