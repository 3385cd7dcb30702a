"""What training says to the judge arrives as it was said, whatever the sizes of its arrays."""

from __future__ import annotations

import json
from multiprocessing import Pipe
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ssmlbench.core.events import Event
from ssmlbench.runs.messages import JudgePipe, Malformed, receive
from ssmlbench.runs.train import TrainingReport
from ssmlbench.training.evaluation import Trained

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


EVENTS: dict[str, dict[str, Any]] = {
    "EpochEnded": {"epoch": 2, "epochs": 3, "losses": {"labelled": 0.5}},
    "Resumed": {"epoch": 2},
    "Encoding": {"part": "test plain", "done": 2, "total": 3},
    "Warned": {"text": "few rows", "of_data": False},
}
WRONG = [
    ("EpochEnded", {"epoch": "two"}),
    ("EpochEnded", {"epoch": 10**30}),
    ("EpochEnded", {"losses": {"labelled": "low"}}),
    ("EpochEnded", {"losses": [1.0]}),
    ("Resumed", {"epoch": {}}),
    ("Encoding", {"done": None}),
    ("Warned", {"text": {"a": 1}}),
]


def told(message: dict[str, Any]) -> Event | TrainingReport | None:
    ours, theirs = Pipe()
    JudgePipe(ours)._send(message)
    return receive(theirs, SimpleNamespace())  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "changed"), WRONG)
def test_an_event_with_values_of_other_types_is_refused(kind: str, changed: dict[str, Any]) -> None:
    """The display of a grid would fail, and with it every run."""
    values = EVENTS[kind]
    assert type(told({"type": "event", "event": kind, "values": values})).__name__ == kind
    with pytest.raises(Malformed):
        told({"type": "event", "event": kind, "values": {**values, **changed}})


def test_a_long_warning_is_shortened() -> None:
    values = {"text": "x" * 20_000, "of_data": False}
    event: Any = told({"type": "event", "event": "Warned", "values": values})
    assert len(event.text) < 5_000


ROW = {"epoch": 1, "phase": "semi", "seconds": 0.5, "peak_memory_mb": 3.0, "loss_labelled": 0.5}


def report_of(**changes: Any) -> Any:
    ours, theirs = Pipe()
    trained = Trained(5, [ROW], None, "float32", ["a note"])
    heard: list[Any] = []
    sender = JudgePipe(SimpleNamespace(send_bytes=heard.append))  # type: ignore[arg-type]
    sender.report(TrainingReport(trained, "cpu", 1, "both pools"))
    JudgePipe(ours)._send({**json.loads(heard[0]), **changes})
    return receive(theirs, SimpleNamespace(last_epoch=1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"history": [{**ROW, "pseudo_precision": 1.0}]},
        {"history": [{**ROW, "oracle_map": 1.0}]},
        {"history": [{**ROW, "\x1b[31m": 1.0}]},
        {"history": [{**ROW, "own": [1]}]},
        {"history": [{**ROW, "seconds": "fast"}]},
        {"history": [{"epoch": 1}]},
        {"history": []},
        {"history": [{**ROW, "seconds": float("nan")}]},
        {"history": [{**ROW, "peak_memory_mb": -1.0}]},
        {"history": [{**ROW, "epoch": 2}]},
        {"history": [ROW, ROW]},
        {"history": [{**ROW, **{f"column {number}": 0 for number in range(2_000)}}]},
        {"steps": -5},
        {"micro_batch": 10**40},
    ],
)
def test_a_report_that_training_cannot_have_written_is_refused(changes: dict[str, Any]) -> None:
    """Columns of the judge come from the judge alone."""
    assert report_of().trained.history == [ROW]
    with pytest.raises(Malformed):
        report_of(**changes)


def test_texts_of_a_report_are_plain_lines() -> None:
    report = report_of(notes=["\x1b[31mred\nsecond"], device="cuda\x1b[0m")
    assert "\x1b" not in report.trained.notes[0] + report.device
    assert "\n" not in report.trained.notes[0]
