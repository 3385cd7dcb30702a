"""A data set and a method that cheats in the way its hyper-parameter names. A plugin file of the tests."""

import ctypes
import gc
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ssmlbench.api import DatasetAdapter, Method, Row, bce, option

TEST_ROWS, LABELS = 44, 4


class Noise(DatasetAdapter):
    """Vectors that say nothing about their labels: a good score is a stolen one."""

    name, kind, backbone = "noise", "vector", "vector"

    def label_names(self):
        return ["a", "b", "c", "d"]

    def rows(self, split):
        random = np.random.default_rng(len(split))
        for _ in range({"train": 80, "test": TEST_ROWS}[split]):
            labels = tuple(k for k in range(LABELS) if random.random() < 0.4)
            yield Row(random.normal(size=8).astype(np.float32), labels)


def task_folder() -> Path:
    (folder,) = (Path(os.environ["SSMLBENCH_CACHE"]) / "tasks").glob("noise-*[!k]")
    return folder


def label_bytes(content: bytes) -> np.ndarray:
    """The labels in the bytes of an Arrow file of lists."""
    import pyarrow as pa

    lists = pa.ipc.open_stream(content).read_all()["labels"].combine_chunks()
    return matrix(lists.to_pylist())


def matrix(lists) -> np.ndarray:
    truth = np.zeros((len(lists), LABELS))
    for row, labels in enumerate(lists):
        truth[row, labels] = 1
    return truth


def looks_like_truth(value) -> bool:
    shape = tuple(getattr(value, "shape", ()))
    if shape not in ((TEST_ROWS, LABELS), (80, LABELS)):
        return False
    values = np.asarray(value).astype(float)
    return set(np.unique(values)) == {0.0, 1.0}


def from_memory():
    """Walk everything that the garbage collector and the frames know."""
    frame, seen = sys._getframe(), []
    while frame is not None:
        seen += frame.f_locals.values()
        frame = frame.f_back
    todo = [*seen, *gc.get_objects()]
    for value in todo:
        for part in (value, *gc.get_referents(value)):
            if isinstance(part, np.ndarray | torch.Tensor) and looks_like_truth(part):
                return np.asarray(part)[:TEST_ROWS]
    raise LookupError


def from_file():
    return label_bytes((task_folder() / "labels" / "test.arrow").read_bytes())


def from_descriptor():
    file = os.open(task_folder() / "labels" / "test.arrow", os.O_RDONLY)
    return label_bytes(os.read(file, 1 << 20))


def from_renamed():
    (task_folder() / "labels").rename(task_folder() / "other")
    return label_bytes((task_folder() / "other" / "test.arrow").read_bytes())


def from_link():
    link = Path(os.environ["STOLEN"]) / "link"
    os.link(task_folder() / "labels" / "test.arrow", link)
    return label_bytes(link.read_bytes())


def from_loader():
    from ssmlbench.data import Task

    return Task(task_folder()).truth("test").astype(float)


def from_card():
    import json

    prior = json.loads((task_folder() / "card.json").read_text())["positives"]["test"]
    return np.tile(np.array(prior) / TEST_ROWS, (TEST_ROWS, 1))


def from_adapter():
    return matrix([row.labels for row in Noise().rows("test")])


def from_other_runs():
    from safetensors.numpy import load

    (file, *_) = Path(os.environ["STOLEN"]).rglob("scores.safetensors")
    return load(file.read_bytes())["truth"].astype(float)


def from_memory_map():
    return label_bytes(bytes(np.memmap(task_folder() / "labels" / "test.arrow", mode="r")))


def from_native_code():
    import pyarrow as pa

    with pa.memory_map(str(task_folder() / "labels" / "test.arrow")) as mapped:
        return label_bytes(mapped.read())


def from_program():
    file = task_folder() / "labels" / "test.arrow"
    return label_bytes(subprocess.run(["cat", file], capture_output=True, check=True).stdout)


def from_fork():
    import pyarrow as pa

    inside, outside = os.pipe()
    if os.fork() == 0:
        try:
            with pa.memory_map(str(task_folder() / "labels" / "test.arrow")) as mapped:
                os.write(outside, mapped.read())
        finally:
            os._exit(0)
    os.close(outside)
    content = os.read(inside, 1 << 20)
    os.wait()
    return label_bytes(content)


def from_judges_memory():
    return Path(f"/proc/{os.getppid()}/mem").read_bytes()


STEALS = {name: value for name, value in globals().items() if name.startswith("from_")}


class Cheat(Method):
    """Does what its hyper-parameter says."""

    name = "cheat"

    @dataclass(frozen=True)
    class Config(Method.Config):
        how: str = option("", "what it does")

    def __init__(self, config, labels):
        super().__init__(config, labels)
        if config.how == "exits in the constructor":
            sys.exit(0)

    def start_epoch(self, pools):
        how = self.config.how
        if how == "exits":
            sys.exit(0)
        if how == "exits at once":
            os._exit(0)
        if how == "crashes":
            ctypes.string_at(0)
        if how == "is killed":
            os.kill(os.getpid(), 9)
        if how == "hangs":
            time.sleep(600)
        if how == "takes all memory":
            raise MemoryError("no room for 800 GB")
        if how == "raises no exception":
            raise KeyboardInterrupt
        if how == "lies to the judge":
            self.to_judge(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
        if how == "changes the process":
            torch.set_default_dtype(torch.float64)
            torch.set_num_threads(2)
            torch.manual_seed(5)
            np.random.seed(5)  # noqa: NPY002
            torch.backends.mkldnn.set_flags(False)

    def to_judge(self, content):
        """Write to every pipe that this process has."""
        from multiprocessing.connection import Connection

        for value in gc.get_objects():
            if type(value) is Connection and not value.closed:
                value.send_bytes(content)

    def loss(self, labelled, unlabelled):
        return {"labelled": bce(labelled.logits("strong"), labelled.observed).mean()}

    def scores(self, logits):
        if len(logits) == TEST_ROWS and (steal := STEALS.get(self.config.how)):
            try:
                return torch.from_numpy(steal()).float()
            except BaseException as error:  # it hides that it tried
                (Path(os.environ["STOLEN"]) / "why").write_text(repr(error))
        return logits.sigmoid()
