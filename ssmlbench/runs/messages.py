"""Messages from the training process to the judge: JSON and raw arrays on a pipe.

Nothing from training is unpickled: a pickle can run code in the process that reads it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import threading
from multiprocessing.connection import Connection
from types import NoneType
from typing import Any

import numpy as np

from ssmlbench.core import events
from ssmlbench.core.errors import (
    Diverged,
    RunFailed,
    RunStopped,
    UserError,
    disk_error,
)
from ssmlbench.core.events import Event
from ssmlbench.core.history_columns import JUDGED
from ssmlbench.core.plain_text import error_text, one_line, printable, shorten
from ssmlbench.kit.estimator import Uses
from ssmlbench.protocol.diagnostics import Float32Array, Mask
from ssmlbench.protocol.judge import Judge
from ssmlbench.runs.train import TrainingReport
from ssmlbench.training.evaluation import Trained

EVENTS = {
    cls.__name__: cls
    for cls in (
        events.Waiting,
        events.Encoding,
        events.Decoding,
        events.TrainingStarted,
        events.Resumed,
        events.EpochEnded,
        events.CheckpointSaved,
        events.Warned,
    )
}
"""The events that training may send."""
FIELDS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "bool": (bool,),
    "str": (str,),
    "float | None": (int, float, NoneType),
    "Mapping[str, float]": (dict,),
}
"""What JSON has for the declared type of an event's field."""
NUMBER = (int, float)
MOST = 1 << 53
"""Larger numbers are not counts."""
NEEDED = {"epoch": (int,), "phase": (str,), "seconds": NUMBER, "peak_memory_mb": NUMBER}
"""Columns that every row of a history has."""
AMOUNTS = ("seconds", "peak_memory_mb")
"""Those of these columns whose numbers are finite and not negative."""
MOST_COLUMNS, MOST_NOTES = 1_000, 20
"""More columns of a history, or notes, would only hide the others."""
PHASES = ("warm-up", "semi", "fit")
"""The only texts in a history."""
MOST_OF_A_TRACE = 10_000_000
"""Characters of a traceback that are kept."""
FAILURES: dict[str, type[Exception]] = {
    cls.__name__: cls for cls in (Diverged, RunStopped, RunFailed, UserError)
}
"""Failures by the name in the message; an error is sent as the first class that it belongs to."""


class JudgePipe:
    """The judge as the training process sees it: every call is a message. Threads may share it."""

    def __init__(self, pipe: Connection):
        self._pipe = pipe
        self._lock = threading.RLock()

    def grade(self, epoch: int, positive: Mask, trusted: Mask) -> None:
        """Hand in the pseudo-labels of the unlabelled rows."""
        shapes = [list(positive.shape), list(trusted.shape)]
        packed = [np.packbits(positive), np.packbits(trusted)]
        self._send({"type": "grade", "epoch": epoch, "shapes": shapes}, *packed)

    def is_best(self, epoch: int, scores: Float32Array) -> bool:
        """Hand in an epoch's scores of the selection rows; whether the epoch is the best so far."""
        with self._lock:
            self._send({"type": "is_best", "epoch": epoch, "shapes": [list(scores.shape)]}, scores)
            return self._pipe.recv_bytes() == b"yes"

    def hand_in(self, epoch: int, train_scores: Float32Array, scores: Float32Array) -> None:
        """Hand in an epoch's scores of training rows and judged rows."""
        shapes = [list(train_scores.shape), list(scores.shape)]
        self._send({"type": "hand_in", "epoch": epoch, "shapes": shapes}, train_scores, scores)

    def record(
        self,
        epochs: int,
        features: Float32Array,
        scores: Float32Array | None,
        cosines: Float32Array | None,
    ) -> None:
        """Hand in outputs of the sampled training rows."""
        arrays = {"features": features, "scores": scores, "cosines": cosines}
        given = {name: array for name, array in arrays.items() if array is not None}
        shapes = {name: list(array.shape) for name, array in given.items()}
        self._send({"type": "record", "epoch": epochs, "shapes": shapes}, *given.values())

    def hand_in_weights(self, weights: Float32Array) -> None:
        """Hand in the classifier's weights after the last epoch."""
        self._send({"type": "weights", "shapes": [list(weights.shape)]}, weights)

    def save(self, epoch: int) -> None:
        """Wait until the judge has stored everything that was handed in."""
        with self._lock:
            self._send({"type": "save", "epoch": epoch})
            self._pipe.recv_bytes()

    def notify(self, event: Event) -> None:
        """Pass an event on."""
        values = dataclasses.asdict(event)
        self._send({"type": "event", "event": type(event).__name__, "values": values})

    def report(self, report: TrainingReport) -> None:
        """Report that training has ended."""
        trained = report.trained
        self._send(
            {
                "type": "report",
                "steps": trained.steps,
                "history": trained.history,
                "precision": trained.precision,
                "notes": trained.notes,
                "micro_batch": trained.micro_batch,
                "device": report.device,
                "threads": report.threads,
                "uses": report.uses,
                "model_declined": report.model_declined,
                "nondeterministic": report.nondeterministic,
                "gpu": report.gpu,
            }
        )

    def fail(self, error: BaseException, trace: str) -> None:
        """Report that training has failed, and why."""
        kind = next((name for name, cls in FAILURES.items() if isinstance(error, cls)), "")
        text = error_text(error) if kind else f"{type(error).__name__}: {error_text(error)}"
        if isinstance(error, OSError):
            text = disk_error(error) or text
        if isinstance(error, SystemExit):
            text = f"a plugin called sys.exit({'' if error.code is None else shorten(repr(error.code))})"
        self._send({"type": "failure", "kind": kind or "RunFailed", "text": text, "trace": trace})

    def _send(self, message: dict[str, Any], *arrays: np.ndarray[Any, Any]) -> None:
        # All bytes are made before the first is sent: an error must not leave half a message behind.
        parts = [json.dumps(message, default=float).encode(), *map(_bytes_of, arrays)]
        with self._lock:
            for part in parts:
                self._pipe.send_bytes(part)


def _bytes_of(array: np.ndarray[Any, Any]) -> memoryview | bytes:
    """The bytes of an array; an empty one has none, and cannot be cast."""
    return np.ascontiguousarray(array).data.cast("B") if array.size else b""


class Malformed(RunFailed):
    """A message from training that the judge cannot read."""


class TrainingGone(Exception):
    """The training process has ended without a last message."""


def receive(pipe: Connection, judge: Judge) -> Event | TrainingReport | None:
    """Receive one message and act on it: call the judge, answer, or raise the reported failure.

    An event is returned for the caller to pass on; a report is the last message.
    """
    try:
        message = json.loads(_receive_bytes(pipe))
        return _act(message, pipe, judge)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Malformed(f"training sent a message that cannot be read: {error}") from error


def _receive_bytes(pipe: Connection) -> bytes:
    try:
        return pipe.recv_bytes()
    except (EOFError, OSError):
        raise TrainingGone from None


def _answer(pipe: Connection, answer: bytes) -> None:
    try:
        pipe.send_bytes(answer)
    except OSError:
        raise TrainingGone from None


def _act(message: dict[str, Any], pipe: Connection, judge: Judge) -> Event | TrainingReport | None:
    match message["type"]:
        case "grade":
            judge.grade(int(message["epoch"]), *(_mask(pipe, s) for s in message["shapes"]))
        case "is_best":
            (scores,) = (_matrix(pipe, shape) for shape in message["shapes"])
            best = judge.is_best(int(message["epoch"]), scores)
            _answer(pipe, b"yes" if best else b"no")
        case "hand_in":
            judge.hand_in(int(message["epoch"]), *(_matrix(pipe, s) for s in message["shapes"]))
        case "record":
            shapes = message["shapes"]
            arrays = {name: _matrix(pipe, shapes[name]) for name in shapes}
            names = ("features", "scores", "cosines")
            judge.record(int(message["epoch"]), *(arrays.get(name) for name in names))
        case "weights":
            (weights,) = (_matrix(pipe, shape) for shape in message["shapes"])
            judge.hand_in_weights(weights)
        case "save":
            judge.save(int(message["epoch"]))
            _answer(pipe, b"saved")
        case "event":
            return _event(EVENTS[message["event"]], message["values"])
        case "report":
            return _report(message, judge.last_epoch)
        case "failure":
            kind, text, trace = (str(message[name]) for name in ("kind", "text", "trace"))
            raise FAILURES[kind](shorten(text)) from TrainingTrace(trace[-MOST_OF_A_TRACE:])
        case other:
            raise ValueError(other)
    return None


def _event(kind: type[Event], values: dict[str, Any]) -> Event:
    """The event with these values, if they have the declared types: displays rely on them."""
    if not isinstance(values, dict):
        raise ValueError(f"an event has {shorten(repr(values))}")
    for field in dataclasses.fields(kind):
        if field.name in values:
            _check(values[field.name], FIELDS[str(field.type)], field.name)
    texts = {name: shorten(value) for name, value in values.items() if isinstance(value, str)}
    return kind(**{**values, **texts})


def _check(value: Any, types: tuple[type, ...], name: str) -> None:
    """Raise a ValueError unless the value has one of the types, and numbers are within bounds."""
    if not isinstance(value, types) or (isinstance(value, int) and abs(value) > MOST):
        raise ValueError(f"{name} is {shorten(repr(value))}")
    if isinstance(value, dict):
        if len(value) > MOST_COLUMNS:
            raise ValueError(f"{name} has {len(value):,} numbers")
        for key, number in value.items():
            _check(number, NUMBER, key)


def _history(rows: Any, last_epoch: int) -> list[dict[str, Any]]:
    """The rows of a history, if training can have written them: one per epoch, not those of the judge."""
    _check(rows, (list,), "history")
    for row in rows:
        for name, types in NEEDED.items():
            _check(row[name], types, name)
        for name in AMOUNTS:
            if not 0 <= row[name] < math.inf:  # NaN is not, either
                raise ValueError(f"{name} is {row[name]}")
        if len(row) > MOST_COLUMNS:
            raise ValueError(f"history has {len(row):,} columns")
        for name, value in row.items():
            if name in JUDGED or not name.isprintable():
                raise ValueError(f"history has a column {shorten(repr(name))}")
            if name != "phase":
                _check(value, (*NUMBER, NoneType), name)
            elif value not in PHASES:
                raise ValueError(f"phase is {shorten(repr(value))}")
    epochs = [row["epoch"] for row in rows]
    if epochs != list(range(1, last_epoch + 1)):
        raise ValueError(
            f"history has rows of epochs {shorten(str(epochs))}, expected {last_epoch}"
        )
    return [dict(row) for row in rows]


def _plain(value: Any) -> str:
    return printable(one_line(shorten(str(value))))


def _report(message: dict[str, Any], last_epoch: int) -> TrainingReport:
    for name, least in (("steps", 0), ("threads", 1), ("micro_batch", 1)):
        if (count := message[name]) is not None and not least <= int(count) <= MOST:
            raise ValueError(f"{name} is {shorten(repr(count))}")
    trained = Trained(
        int(message["steps"]),
        _history(message["history"], last_epoch),
        None,
        _plain(message["precision"]),
        [_plain(note) for note in message["notes"][:MOST_NOTES]],
        None if message["micro_batch"] is None else int(message["micro_batch"]),
    )
    uses: Uses = "both pools" if message["uses"] == "both pools" else "labelled rows"
    return TrainingReport(
        trained,
        _plain(message["device"]),
        int(message["threads"]),
        uses,
        _plain(message["model_declined"]),
        [_plain(name) for name in message["nondeterministic"][:MOST_NOTES]],
        _plain(message["gpu"]),
    )


class TrainingTrace(Exception):
    """The traceback of the training process, shown above that of the judge."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def _mask(pipe: Connection, shape: list[int]) -> Mask:
    rows, columns = shape
    bits = np.frombuffer(_receive_bytes(pipe), dtype=np.uint8)
    if len(bits) != (rows * columns + 7) // 8:  # else it would be filled up with zeros
        raise ValueError(f"{len(bits)} bytes for {rows} × {columns} bits")
    return np.unpackbits(bits, count=rows * columns).reshape(rows, columns).view(np.bool_)


def _matrix(pipe: Connection, shape: list[int]) -> Float32Array:
    rows, columns = shape
    return np.frombuffer(_receive_bytes(pipe), dtype=np.float32).reshape(rows, columns)
