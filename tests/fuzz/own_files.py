"""Files that this tool writes and reads back, and messages from training to the judge."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ssmlbench.boards.csv_files import read_exported
from ssmlbench.boards.report.histories import read_history
from ssmlbench.core.checksums import FIELD, UNSTAMPED, stamp, with_checksum
from ssmlbench.core.errors import DamagedFile, RunFailed, UserError
from ssmlbench.core.spec import RunSpec
from ssmlbench.data.task import card_file, read_card
from ssmlbench.grid.queue_file import read_queues
from ssmlbench.grid.status import read_states
from ssmlbench.grid.study import _parse_study
from ssmlbench.protocol.judge import Judge
from ssmlbench.protocol.observation import Labels
from ssmlbench.runs.diagnostics import Diagnostics
from ssmlbench.runs.finished import Finished, read_finished, read_result
from ssmlbench.runs.index import RunIndex
from ssmlbench.runs.messages import TrainingGone, receive
from ssmlbench.runs.model_card import read_model_card
from ssmlbench.runs.scores import StoredScores
from ssmlbench.training.checkpoint import Checkpoint
from tests.fuzz.attack import Read, Seeds, Target, as_json

SAMPLES = Path(__file__).parents[1] / "samples"
RUN_PATH = "toy/semi-0.1/bce/0-abc"


def forms(content: bytes) -> list[bytes]:
    """The content as it is and, if it is a JSON object, with its checksum put right."""
    with suppress(ValueError, RecursionError):
        values = json.loads(content)
        if isinstance(values, dict):
            return [content, json.dumps(with_checksum(values)).encode()]
    return [content]


def run_file(name: str) -> Read:
    """One file of a run folder, read by all that looks at a results folder."""

    def read(content: bytes, folder: Path) -> None:
        home = folder / "results" / "toy" / "semi-0.1" / "bce" / "0-abc"
        home.mkdir(parents=True, exist_ok=True)
        for form in forms(content):
            (home / name).write_bytes(form)
            states = read_states([folder / "results"])
            json.dumps([state.as_dict() for state in states])
            read_finished([folder / "results"])
            run = read_result(home)
            if isinstance(run, Finished):
                assert run.spec.variant
                assert run.spec.hash
                assert isinstance(run.finished_at, str)
                read_history(run)

    return read


def read_model(content: bytes, folder: Path) -> None:
    for form in forms(content):
        (folder / "model.json").write_bytes(form)
        with suppress(UserError, DamagedFile):
            read_model_card(folder)


def read_queue(content: bytes, folder: Path) -> None:
    (folder / ".queue").mkdir(exist_ok=True)
    for form in forms(content):
        (folder / ".queue" / "grid.json").write_bytes(form)
        read_queues(folder)


def read_study(content: bytes, folder: Path) -> None:
    for form in forms(content):
        (folder / "0-2.json").write_bytes(form)
        with suppress(UserError, DamagedFile):
            _parse_study(folder / "0-2.json")


def read_board(content: bytes, folder: Path) -> None:
    (folder / "toy.csv").write_bytes(content)
    runs, complaints = read_exported([folder / "toy.csv"])
    assert all(isinstance(text, str) for text in complaints)
    assert all(run.spec.variant for run in runs)


def read_scores(content: bytes, folder: Path) -> None:
    (folder / "scores.safetensors").write_bytes(content)
    with suppress(ValueError, OSError):  # of which its callers make a reason
        stored = StoredScores.read(folder)
        assert stored.scores.shape == stored.truth.shape
        stored.to_pandas()


def read_diagnostics(content: bytes, folder: Path) -> None:
    (folder / "diagnostics.safetensors").write_bytes(content)
    Diagnostics.read(folder)


def read_state(content: bytes, folder: Path) -> None:
    file = folder / "state.safetensors"
    for stamped in (False, True):
        file.write_bytes(content)
        with suppress(DamagedFile, ValueError if stamped else DamagedFile):  # nothing to stamp
            if stamped:
                stamp(file)
            Checkpoint(file, "abc").load()


def read_data_card(content: bytes, folder: Path) -> None:
    home = folder / "toy-v1.abc"
    home.mkdir(exist_ok=True)
    for form in forms(content):
        card_file(home).write_bytes(form)
        with suppress(DamagedFile):
            read_card(home)


def read_index(content: bytes, folder: Path) -> None:
    index = RunIndex(folder)
    index.file = folder / "index.sqlite"
    index.file.write_bytes(content)
    index.open()
    index.get(RUN_PATH, (1, 2, 3))


class Sent:
    """A pipe on which training has sent parts of a content."""

    def __init__(self, content: bytes):
        self.parts = content.split(b"\n--\n")

    def recv_bytes(self) -> bytes:
        if not self.parts:
            raise EOFError
        return self.parts.pop(0)

    def send_bytes(self, _: bytes) -> None:
        pass


@cache
def truth() -> Labels:
    return np.array([[1, 0], [0, 1], [1, 1], [0, 0]] * 2, dtype=np.int8)


def read_message(content: bytes, _: Path) -> None:
    """Messages from training, which a plugin may have written."""
    pipe: Any = Sent(content)
    spec = RunSpec("bce", "toy", pi=0.5, selection="oracle")
    judge = Judge.of(spec, truth(), truth())
    with suppress(RunFailed, TrainingGone):
        while True:
            receive(pipe, judge)


def safetensors(arrays: dict[str, Any], metadata: dict[str, str]) -> Seeds:
    from safetensors.numpy import save

    return lambda: [save(arrays, metadata)]


@cache
def index_file() -> bytes:
    folder = Path(tempfile.mkdtemp())
    index = RunIndex(folder)
    index.file = folder / "index.sqlite"
    index.put(RUN_PATH, (1, 2, 3), RunSpec("bce", "toy"), {"metrics": {}})
    index.save()
    return index.file.read_bytes()


def sample(pattern: str) -> Seeds:
    return lambda: [file.read_bytes() for file in sorted(SAMPLES.rglob(pattern))][:4]


def small_board() -> list[bytes]:
    """A board of this repository: its first lines."""
    folder = Path(__file__).parents[2] / "leaderboards" / "measured" / "semi"
    file = folder / "emotions.csv"
    lines = file.read_text(encoding="utf-8").splitlines()
    return ["\n".join([*lines[:9], ""]).encode()]


MODEL = {
    "format": 1,
    "spec": {"method": "bce", "dataset": "toy"},
    "kind": "vector",
    "labels": ["a", "b"],
    "rules": {"threshold": {}, "calibrated": {"thresholds": [0.5, None]}},
    "made_with": {"torch": "2.13"},
}
STUDY = {
    "base": {"method": "bce", "dataset": "toy"},
    "space": {"lr": "log 0.1..1"},
    "trials": [{"trial": 0, "drawn": {"lr": 0.1}, "map": 0.5, "hash": "abc"}],
}
QUEUE = {
    "engine": "local", "detached": False, "host": "x", "time": 1.0, "facts": {},
    "runs": [{"folder": "toy/semi-0.1/bce/0-abc", "name": "bce", "epochs": 2, "job": "1"}],
}  # fmt: skip
CARD = {
    "name": "toy", "kind": "vector", "version": 1, "label_names": ["a"], "rows": {"train": 2},
    "positives": {"train": [1]}, "fingerprint": "abc", "flips": False, "folder": "toy-v1.abc",
    "files": {"train.arrow": {"bytes": 8, "sha256": "0"}},
}  # fmt: skip
SCORES = np.full((8, 2), 0.5, np.float32).tobytes()
MESSAGES = [
    b'{"type": "grade", "epoch": 1, "shapes": [[4, 2], [4, 1]]}\n--\n\x0f\n--\n\xf0',
    b'{"type": "is_best", "epoch": 1, "shapes": [[8, 2]]}\n--\n' + SCORES,
    b'{"type": "hand_in", "epoch": 1, "shapes": [[8, 2], [8, 2]]}\n--\n'
    + SCORES
    + b"\n--\n"
    + SCORES,
    b'{"type": "record", "epoch": 1, "shapes": {"features": [8, 2]}}\n--\n' + SCORES,
    b'{"type": "weights", "shapes": [[8, 2]]}\n--\n' + SCORES,
    b'{"type": "save", "epoch": 1}\n--\n{"type": "event", "event": "Warned", "values": {"text": "x"}}',
    b'{"type": "failure", "kind": "RunFailed", "text": "why", "trace": "where"}',
    b'{"type": "report", "history": [{}], "notes": [], "steps": 1, "precision": "float32", "gpu": "",'
    b'"micro_batch": null, "uses": "both pools", "device": "cpu", "threads": 1, "model_declined": "",'
    b'"nondeterministic": []}',
]
FAILED = {"error": "why", "traceback": "where", "attempts": 2, "host": "x", "time": 1.0}


OWN_FILES = {
    "result": Target(run_file("result.json"), sample("result.json")),
    "spec": Target(run_file("spec.json"), sample("spec.json")),
    "error": Target(run_file("error.json"), as_json(FAILED)),
    "progress": Target(run_file("progress.json"), as_json({"epoch": 1, "epochs": 2, "time": 1.0})),
    "queue": Target(read_queue, as_json(QUEUE)),
    "study": Target(read_study, as_json(STUDY)),
    "model": Target(read_model, as_json(MODEL)),
    "board": Target(read_board, small_board),
    "scores": Target(
        read_scores,
        lambda: [
            *safetensors(
                {"scores": np.zeros((2, 2), np.float32), "truth": np.eye(2, dtype=np.uint8)},
                {"names": '{"labels": ["a", "b"], "ids": ["1", "2"]}'},
            )(),
            *safetensors(
                {
                    "scores_values": np.ones(1, np.float32),
                    "scores_given": np.array([128], np.uint8),
                    "scores_shape": np.array([2, 2]),
                    "truth_labels": np.array([1], np.int32),
                    "truth_counts": np.array([0, 1], np.int32),
                    "truth_shape": np.array([2, 2]),
                },
                {},
            )(),
        ],
    ),
    "diagnostics": Target(
        read_diagnostics,
        safetensors({"head": np.zeros((2, 2), np.float32)}, {"label_names": '["a", "b"]'}),
    ),
    "state": Target(
        read_state,
        safetensors(
            {"network/w": np.zeros((2, 2), np.float32)},
            {"facts": '{"epoch": 1}', "run": "abc", FIELD: UNSTAMPED},
        ),
    ),
    "card": Target(read_data_card, as_json(CARD)),
    "index": Target(read_index, lambda: [index_file()]),
    "message": Target(read_message, lambda: MESSAGES),
}
