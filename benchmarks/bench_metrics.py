"""How much faster the five metrics are than the loops of typical research evaluation code.

Prints one line: the ratio of best CPU times and the largest difference between the two results.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, f1_score, hamming_loss

from ssmlbench.protocol.decisions import decide
from ssmlbench.protocol.metrics import METRICS, evaluate

ROWS, LABELS, DENSITY = 40_137, 80, 0.0365  # the size and label density of COCO's test set
REPEATS = 5


def with_loops(scores: NDArray, truth: NDArray) -> dict[str, float]:
    """The five metrics the usual way: rows and labels one by one, scikit-learn for the rest."""
    predicted = np.zeros(truth.shape)
    for i in range(len(scores)):
        best = np.argsort(-scores[i], kind="stable")[: int(truth[i].sum())]
        predicted[i, best] = 1
    precisions = [
        average_precision_score(truth[:, j], scores[:, j]) if truth[:, j].any() else 0.0
        for j in range(truth.shape[1])
    ]
    wrong = 0
    for row, target in zip(scores, truth, strict=True):
        tied = row == row.max()
        wrong += not target[tied].any()
    return {
        "micro_f1": f1_score(truth, predicted, average="micro"),
        "macro_f1": f1_score(truth, predicted, average="macro", zero_division=0),
        "map": float(np.mean(precisions)),
        "hamming": hamming_loss(truth, predicted),
        "one_loss": wrong / len(scores),
    }


def vectorised(scores: NDArray, truth: NDArray) -> dict[str, float]:
    predicted = decide(scores, "top-k", truth=truth)
    return evaluate(scores, truth, predicted, convention="released")


def timed(
    function: Callable[[NDArray, NDArray], dict[str, float]], *data: NDArray
) -> tuple[float, dict[str, float]]:
    start = time.process_time()
    result = function(*data)
    return time.process_time() - start, result


def main() -> None:
    rng = np.random.default_rng(0)
    truth = (rng.random((ROWS, LABELS)) < DENSITY).astype(np.int8)
    logits = rng.standard_normal((ROWS, LABELS)) + 2 * truth - 2
    scores = (1 / (1 + np.exp(-logits))).astype(np.float32)
    slow = fast = float("inf")
    for _ in range(REPEATS):  # in turns, so that a busy machine slows both
        seconds, expected = timed(with_loops, scores, truth)
        slow = min(slow, seconds)
        seconds, measured = timed(vectorised, scores, truth)
        fast = min(fast, seconds)
    difference = max(abs(expected[key] - measured[key]) for key in METRICS)
    print(
        f"five metrics on {ROWS:,} x {LABELS}: {slow / fast:.1f}x faster "
        f"({slow:.2f} s -> {fast * 1e3:.0f} ms), max abs difference {difference:.1e}"
    )


if __name__ == "__main__":
    main()
