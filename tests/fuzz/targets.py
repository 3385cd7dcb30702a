"""What is fuzzed: for each kind of file, good contents to start from and the code that reads one.

A reader may raise a UserError or a DamagedFile, and nothing else.
"""

from __future__ import annotations

import io
import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ssmlbench.boards.csv_files import read_exported
from ssmlbench.boards.papers import Paper, read_paper
from ssmlbench.boards.published import _read_values, published_folder
from ssmlbench.boards.report.histories import read_history
from ssmlbench.core.checksums import FIELD, UNSTAMPED, stamp, with_checksum
from ssmlbench.core.data_options import DataAddress, DataOptions
from ssmlbench.core.errors import DamagedFile, RunFailed, UserError
from ssmlbench.core.spec import RunSpec
from ssmlbench.data.adapter import BadRow, DatasetAdapter, Row
from ssmlbench.data.arff_syntax import Attribute, read_values
from ssmlbench.data.label_cells import flag, label_values, multi_hot_width
from ssmlbench.data.label_lists import label_list
from ssmlbench.data.libsvm import SparseRow, read_line
from ssmlbench.data.plain_inputs import plain_inputs
from ssmlbench.data.row_checks import RowChecker, StoredRow
from ssmlbench.data.table_rows import vector_of
from ssmlbench.data.task import card_file, read_card
from ssmlbench.data.user_data import data_class
from ssmlbench.grid.queue_file import read_queues
from ssmlbench.grid.status import read_states
from ssmlbench.grid.study import _parse_study
from ssmlbench.grid.toml_file import read_grid
from ssmlbench.protocol.judge import Judge
from ssmlbench.protocol.observation import Labels
from ssmlbench.runs.diagnostics import Diagnostics
from ssmlbench.runs.finished import Finished, read_finished, read_result
from ssmlbench.runs.index import RunIndex
from ssmlbench.runs.messages import TrainingGone, receive
from ssmlbench.runs.model_card import read_model_card
from ssmlbench.runs.scores import StoredScores
from ssmlbench.training.checkpoint import Checkpoint

PAPER = "cap-readme"
SAMPLES = Path(__file__).parents[1] / "samples"

Read = Callable[[bytes, Path], None]


@dataclass(frozen=True)
class Target:
    """One kind of file. read: is given a content and an empty folder."""

    read: Read
    seeds: Callable[[], list[bytes]]


def attack(target: Target, content: bytes, folder: Path) -> None:
    """Read a content; anything but a clean error comes out."""
    with warnings.catch_warnings(), suppress(UserError, DamagedFile):
        warnings.simplefilter("ignore")
        target.read(content, folder)


# ------------------------------------------------------------------------------- data sets of users


def read_rows(path: Path) -> None:
    """Read a data set to its end, as `prepare` does."""
    adapter = data_class(DataAddress(str(path), DataOptions(empty_labels="unknown")))()
    count = len(adapter.label_names())
    for split in adapter.splits():
        for row in adapter.rows(split):
            assert isinstance(row, Row | BadRow)
            if isinstance(row, Row):
                label_list(row.labels, row.unknown, count)
                assert adapter.kind != "text" or isinstance(row.input, str)


def data_file(ending: str) -> Read:
    def read(content: bytes, folder: Path) -> None:
        file = folder / f"mine{ending}"
        file.write_bytes(content)
        read_rows(file)

    return read


def input_file(ending: str, kind: str) -> Read:
    """What `predict --input` reads."""

    def read(content: bytes, folder: Path) -> None:
        file = folder / f"mine{ending}"
        file.write_bytes(content)
        for name, _ in plain_inputs(file, kind):
            assert isinstance(name, str)

    return read


def part_of_folder(name: str, rest: Callable[[Path], object]) -> Read:
    """One file of a folder whose other files are good."""

    def read(content: bytes, folder: Path) -> None:
        home = folder / "mine"
        rest(home)
        (home / name).write_bytes(content)
        read_rows(home)

    return read


def copied(make: Callable[[], Path]) -> Callable[[Path], object]:
    return lambda home: shutil.copytree(make(), home, dirs_exist_ok=True)


def table() -> pd.DataFrame:
    return pd.DataFrame({"text": ["a b", "c", "d"], "labels": [["x", "y"], [], ["x"]]})


def parquet() -> bytes:
    out = io.BytesIO()
    table().to_parquet(out)
    return out.getvalue()


def npz() -> bytes:
    out = io.BytesIO()
    np.savez(out, X=np.ones((3, 2), np.float32), y=np.array([[1, 0], [0, 1], [-1, 1]]))
    return out.getvalue()


def npy() -> bytes:
    out = io.BytesIO()
    np.save(out, np.ones((3, 2), np.float32))
    return out.getvalue()


def image() -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3)).save(out, "PNG")
    return out.getvalue()


ARFF = (
    "@relation 'toy: -C 2'\n@attribute 'a, b' {0,1}\n@attribute c {0,1}\n@attribute d numeric\n"
    "@attribute e {red,'light blue'}\n@data\n1,0,1.5,red\n{0 1,2 -2e1, 3 'light blue'}\n?,1,0,red\n"
)
XML = '<labels xmlns="http://mulan.sourceforge.net/labels"><label name="a, b"/><label name="c"/></labels>'
CSV = b"text,labels\na b,x;y\nc,\"['x', 'y']\"\n\"d\ne\",[]\n"


def arff_folder(home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "toy-train.arff").write_text(ARFF.replace(": -C 2", ""))


def array_folder(home: Path) -> None:
    home.mkdir(exist_ok=True)
    np.save(home / "y.npy", np.array([[1, 0], [0, 1], [-1, 1]]))


def table_folder(home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "train.csv").write_bytes(CSV)


@cache
def saved_folder() -> Path:
    """A folder of Hugging Face's `save_to_disk`."""
    import datasets

    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "labels": datasets.List(datasets.ClassLabel(names=["x", "y"])),
        }
    )
    rows = {"text": ["a b", "c", "d"], "labels": [[0, 1], [], [0]]}
    folder = Path(tempfile.mkdtemp()) / "saved"
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(folder))
    return folder


def saved_file(name: str) -> Target:
    return Target(
        part_of_folder(name, copied(saved_folder)), lambda: [(saved_folder() / name).read_bytes()]
    )


class Pictures(DatasetAdapter):
    """A data set of images, for its rows alone."""

    name = "pictures"
    kind = "image"

    def label_names(self) -> list[str]:
        return ["a"]

    def rows(self, split: str) -> Iterator[Row | BadRow]:
        yield from ()


PICTURES = Pictures()


def pictures() -> list[bytes]:
    """Small images of several modes and formats."""
    from PIL import Image

    found = []
    for mode, kind in (
        ("I;16", "TIFF"),
        ("RGBA", "PNG"),
        ("P", "GIF"),
        ("L", "JPEG"),
        ("1", "PNG"),
    ):
        content = io.BytesIO()
        Image.new(mode, (3, 2)).save(content, kind)
        found.append(content.getvalue())
    return found


# ------------------------------------------------------- parts of such files, without the files


def read_cell(content: bytes, _: Path) -> None:
    """The cell of a table that has labels."""
    text = content.decode(errors="surrogateescape")
    values = label_values(text, "", "unknown", "row 1")
    assert values is None or isinstance(values, BadRow) or all(isinstance(v, str) for v in values)
    assert multi_hot_width([text]) >= 0
    flag(text)


def read_vector(content: bytes, _: Path) -> None:
    """The cell of a table that has a vector."""
    vector = vector_of({"vector": content.decode(errors="surrogateescape")}, ["vector"])
    assert isinstance(vector, BadRow) or vector.dtype == np.float32


def read_address(content: bytes, _: Path) -> None:
    """A path with options, as grid files and other processes have it: its text means the same."""
    text = content.decode(errors="surrogateescape")
    if "\0" in text or len(text) > 200:  # no file has such a name
        return
    address = DataAddress.parse(text)
    assert DataAddress.parse(address.text) == address or not address.options.given


def read_picture(content: bytes, _: Path) -> None:
    """An image of a data set."""
    row = RowChecker(PICTURES, 1).checked(Row(content, (0,)), "train", "row 1")
    assert isinstance(row, BadRow | StoredRow)


def read_arff_rows(content: bytes, _: Path) -> None:
    """The rows of an ARFF file, after a good header."""
    attributes = [
        Attribute.nominal("a", ("0", "1")),
        Attribute("b", (), {}),
        Attribute.nominal("c", ("red", "light blue", "it's")),
    ]
    empty = np.array([attribute.absent for attribute in attributes])
    for line in content.decode(errors="surrogateescape").split("\n"):
        values = read_values(line.strip(), attributes, empty, {0})
        assert isinstance(values, str) or values.shape == (3,)


def read_svm_row(content: bytes, _: Path) -> None:
    text = content.decode(errors="surrogateescape").rstrip()
    if text.strip():
        row = read_line(text)
        assert isinstance(row, BadRow | SparseRow)


# --------------------------------------------------------------------------------- our own files


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


def read_grid_file(content: bytes, folder: Path) -> None:
    (folder / "grid.toml").write_bytes(content)
    read_grid(folder / "grid.toml")


def read_paper_file(content: bytes, folder: Path) -> None:
    (folder / "paper.toml").write_bytes(content)
    assert read_paper(folder / "paper.toml").citation


@cache
def published_paper() -> Paper:
    return read_paper(published_folder() / f"{PAPER}.toml")


def read_paper_numbers(content: bytes, folder: Path) -> None:
    (folder / "paper.csv").write_bytes(content)
    for value in _read_values(published_paper(), folder / "paper.csv"):
        assert value.rounding > 0
        assert isinstance(value.value, float)


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


def safetensors(arrays: dict[str, Any], metadata: dict[str, str]) -> Callable[[], list[bytes]]:
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


def sample(pattern: str) -> Callable[[], list[bytes]]:
    return lambda: [file.read_bytes() for file in sorted(SAMPLES.rglob(pattern))][:4]


def small_board() -> list[bytes]:
    """A board of this repository: its first lines."""
    folder = Path(__file__).parents[2] / "leaderboards" / "measured" / "semi"
    file = folder / "emotions.csv"
    lines = file.read_text(encoding="utf-8").splitlines()
    return ["\n".join([*lines[:9], ""]).encode()]


GRID = b"""methods = ["bce", "cap"]
datasets = ["multidigits", "./mine.csv?holdout=0.2"]
pi = [0.05, 0.1]
seeds = 3
epochs = 20
[set]
loss = "bce"
[set.cap]
positive_share = 0.9
[[exclude]]
method = "bce"
pi = 0.1
"""
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
CELLS = (
    b"x;y", b"['x', 'y']", b'["x", "y"]', b"[0 1]", b"('x', 'y')", b"{'x'}", b"set()", b"1.0", b"-1", b"",
    b"array(['x', 'y'], dtype=object)", b"[np.str_('x'), np.int64(1)]", b"(other)", b"a|b,c", b"[]",
)  # fmt: skip
ADDRESSES = (b"mine?holdout=0.2&drop-leaks=True", b"./a b", b"hf:a/b@c?id-column=%41")
ARFF_ROWS = b"1,0.5,red\n?,-1e3,'light blue'\n{0 1,2 'it\\'s'}\n{}\n0,1,\"light blue\"\n"
RUN_PATH = "toy/semi-0.1/bce/0-abc"
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


def fixed(*contents: bytes) -> Callable[[], list[bytes]]:
    return lambda: list(contents)


def as_json(values: object) -> Callable[[], list[bytes]]:
    return fixed(json.dumps(values).encode())


TARGETS: dict[str, Target] = {
    "csv": Target(data_file(".csv"), fixed(CSV)),
    "tsv": Target(data_file(".tsv"), fixed(b"text\tx\ty\na b\t1\t0\nc\t\t-1\n")),
    "jsonl": Target(
        data_file(".jsonl"), lambda: [table().to_json(orient="records", lines=True).encode()]
    ),
    "json": Target(
        data_file(".json"),
        lambda: [
            table().to_json(orient="records").encode(),
            table().to_json().encode(),
            table().to_json(orient="records", lines=True).encode(),
        ],
    ),
    "parquet": Target(data_file(".parquet"), lambda: [parquet()]),
    "arff": Target(data_file(".arff"), fixed(ARFF.encode())),
    "xml": Target(part_of_folder("toy.xml", arff_folder), fixed(XML.encode())),
    "svm": Target(data_file(".svm"), fixed(b"# rows\n1,3 1:0.5 3:1\n 2:7\n3 1:-1e-2 # end\n")),
    "npz": Target(data_file(".npz"), lambda: [npz()]),
    "npy": Target(part_of_folder("X.npy", array_folder), lambda: [npy()]),
    "labels": Target(part_of_folder("labels.txt", table_folder), fixed(b"x\ny\n")),
    "saved-state": saved_file("state.json"),
    "saved-info": saved_file("dataset_info.json"),
    "saved-rows": saved_file("data-00000-of-00001.arrow"),
    "input-csv": Target(input_file(".csv", "vector"), fixed(b"id,a,b\n1,0.5,2\n2,1e3,-1\n")),
    "input-npz": Target(input_file(".npz", "vector"), lambda: [npz()]),
    "input-npy": Target(input_file(".npy", "vector"), lambda: [npy()]),
    "input-image": Target(input_file(".png", "image"), lambda: [image()]),
    "input-text": Target(input_file(".txt", "text"), fixed(b"a b\nc\n")),
    "grid": Target(read_grid_file, fixed(GRID)),
    "paper": Target(
        read_paper_file, lambda: [(published_folder() / f"{PAPER}.toml").read_bytes()[:3000]]
    ),
    "paper-numbers": Target(
        read_paper_numbers, lambda: [(published_folder() / f"{PAPER}.csv").read_bytes()[:600]]
    ),
    "result": Target(run_file("result.json"), sample("result.json")),
    "spec": Target(run_file("spec.json"), sample("spec.json")),
    "error": Target(run_file("error.json"), as_json(FAILED)),
    "progress": Target(run_file("progress.json"), as_json({"epoch": 1, "epochs": 2, "time": 1.0})),
    "queue": Target(read_queue, as_json(QUEUE)),
    "study": Target(read_study, as_json(STUDY)),
    "model": Target(read_model, as_json(MODEL)),
    "board": Target(read_board, small_board),
    "cell": Target(read_cell, fixed(*CELLS)),
    "vector": Target(read_vector, fixed(b"[0.5, 1e3]", b"1;2;3", b"[1. 2.\n 3.]")),
    "address": Target(read_address, fixed(*ADDRESSES)),
    "picture": Target(read_picture, pictures),
    "arff-rows": Target(read_arff_rows, fixed(ARFF_ROWS)),
    "svm-row": Target(read_svm_row, fixed(b"1,3 1:0.5 3:1 qid:4", b" 2:7", b"3.0 1:-1e-2")),
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
"""By a name; tests/fuzz/corpus has a folder of this name for contents that are tried each time."""
