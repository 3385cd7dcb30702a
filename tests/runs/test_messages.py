"""What training says to the judge arrives as it was said, whatever the sizes of its arrays."""

from __future__ import annotations

from multiprocessing import Pipe
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ssmlbench.runs.messages import JudgePipe, receive

SIZES = [(3, 2), (0, 2), (3, 0), (0, 0), (1, 1)]
"""A run that is judged on nothing has no test rows; a pool may be empty."""


@pytest.mark.parametrize("test", SIZES)
@pytest.mark.parametrize("train", SIZES)
def test_scores_of_any_size_arrive(train: tuple[int, int], test: tuple[int, int]) -> None:
    ours, theirs = Pipe()
    heard: list[Any] = []
    judge: Any = SimpleNamespace(
        hand_in=lambda epoch, *arrays: heard.extend(arrays),
        grade=lambda epoch, *masks: heard.extend(masks),
        hand_in_weights=heard.append,
    )
    scores = [np.random.default_rng(0).random(size, dtype=np.float32) for size in (train, test)]
    sender = JudgePipe(ours)
    sender.hand_in(1, *scores)
    sender.grade(1, scores[0] > 0.5, scores[1] > 0.5)
    sender.hand_in_weights(scores[1].T)  # not in one piece
    for _ in range(3):
        receive(theirs, judge)
    expected = [*scores, scores[0] > 0.5, scores[1] > 0.5, scores[1].T]
    for found, sent in zip(heard, expected, strict=True):
        assert found.shape == sent.shape
        assert np.array_equal(found, sent)


def test_a_message_that_cannot_be_sent_leaves_the_pipe_clean() -> None:
    ours, theirs = Pipe()
    sender = JudgePipe(ours)
    with pytest.raises(TypeError):
        sender._send({"type": "hand_in", "shapes": {1, 2}}, np.ones(3))
    assert not theirs.poll()
