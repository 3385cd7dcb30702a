"""Where the labels, results and caches of the tests lie, and how bytes of labels are read."""

import ctypes
import os
from pathlib import Path

import numpy as np

TEST_ROWS, LABELS = 44, 4


def cache_folder() -> Path:
    return Path(os.environ["SSMLBENCH_CACHE"])


def stolen() -> Path:
    """The folder of the test: results and raw data are in it, and cheats write what they found."""
    return Path(os.environ["STOLEN"])


def task_folder() -> Path:
    """The prepared data set."""
    (folder,) = (cache_folder() / "tasks").glob("noise-*[!k]")
    return folder


def labels() -> Path:
    """The sealed labels of the test rows."""
    return task_folder() / "labels" / "test.arrow"


def index_of_results() -> Path:
    (file, *_) = (cache_folder() / "index").glob("*.sqlite")
    return file


def judgements() -> Path:
    """What a judge keeps while a run is made."""
    (file,) = (stolen() / "results").rglob(".*judgements.safetensors")
    return file


def own_folder() -> Path:
    """The folder of the run that meddles."""
    (spec,) = (f for f in (stolen() / "results").rglob("spec.json") if "meddler" in f.parts)
    return spec.parent


def other_run() -> Path:
    """The folder of a finished run of another method."""
    (result,) = (f for f in (stolen() / "results").rglob("result.json") if "bce" in f.parts)
    return result.parent


def elsewhere() -> Path:
    """The folder of a finished run in another results folder."""
    (result,) = (stolen() / "elsewhere").rglob("result.json")
    return result.parent


def raw() -> Path:
    return stolen() / "raw"


def other_cache() -> Path:
    """The labels of the same data set, prepared where SSMLBENCH_CACHE was not set."""
    return Path(os.environ["XDG_CACHE_HOME"]) / "ssmlbench/tasks/noise-v1.9/labels/test.arrow"


def label_bytes(content: bytes) -> np.ndarray:
    """The labels in the bytes of an Arrow file of lists."""
    import pyarrow as pa

    lists = pa.ipc.open_stream(content).read_all()["labels"].combine_chunks()
    return matrix(lists.to_pylist())


def matrix(lists) -> np.ndarray:
    """Lists of labels as rows of zeros and ones."""
    truth = np.zeros((len(lists), LABELS))
    for row, labels in enumerate(lists):
        truth[row, labels] = 1
    return truth


def read_in_libc(path) -> bytes:
    """Read a file past Python, which does not see it."""
    libc = ctypes.CDLL(None, use_errno=True)
    file = libc.open(os.fsencode(path), os.O_RDONLY)
    if file < 0:
        raise OSError(ctypes.get_errno(), "open")
    content = ctypes.create_string_buffer(1 << 20)
    return content.raw[: libc.read(file, content, 1 << 20)]
