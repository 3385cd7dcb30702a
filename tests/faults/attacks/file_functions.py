"""The label files and the card, read through file functions of Python and of libraries that use them."""

import asyncio
import fcntl
import fileinput
import importlib.machinery
import io
import json
import linecache
import mmap
import os
import pickle
import runpy
import shutil
import signal
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tests.faults.attacks.places import TEST_ROWS, label_bytes, labels, stolen, task_folder


def from_file():
    return label_bytes(labels().read_bytes())


def from_descriptor():
    file = os.open(labels(), os.O_RDONLY)
    return label_bytes(os.read(file, 1 << 20))


def from_memory_map():
    return label_bytes(bytes(np.memmap(labels(), mode="r")))


def from_loader():
    from ssmlbench.data import Task

    return Task(task_folder()).truth("test").astype(float)


def from_card():
    prior = json.loads((task_folder() / "card.json").read_text())["positives"]["test"]
    return np.tile(np.array(prior) / TEST_ROWS, (TEST_ROWS, 1))


def from_copy():
    shutil.copytree(task_folder(), stolen() / "copy")
    return label_bytes((stolen() / "copy/labels/test.arrow").read_bytes())


def from_deleted_labels():
    labels().unlink()
    raise LookupError


def by_mmap_of_the_whole_file():
    with labels().open("r+b") as opened:
        return bytes(mmap.mmap(opened.fileno(), 0))


def by_fromfile():
    return np.fromfile(labels(), np.uint8)


def by_genfromtxt():
    return np.genfromtxt(labels())


def by_torch_load():
    import torch

    return torch.load(labels(), weights_only=False)


def by_pandas():
    import pandas as pd

    return pd.read_feather(labels())


def by_lock_of_the_file():
    with labels().open("ab") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        return opened.tell()


def by_a_raw_file_object():
    return io.FileIO(str(labels())).readall()


def by_open_code():
    return io.open_code(str(labels())).read()


def by_a_loader_of_modules():
    return importlib.machinery.SourceFileLoader("labels", str(labels())).get_data(str(labels()))


def by_running_it():
    return runpy.run_path(str(labels()))


def by_fileinput():
    with fileinput.input(str(labels()), mode="rb") as lines:
        return list(lines)


def by_linecache():
    """It hides what it cannot open."""
    return linecache.getlines(str(labels()))


def by_an_archive():
    with zipfile.ZipFile(stolen() / "labels.zip", "w") as archive:
        archive.write(labels())
    return zipfile.ZipFile(stolen() / "labels.zip").read(str(labels())[1:])


def by_a_tar_of_the_cache():
    with tarfile.open(stolen() / "cache.tar", "w") as archive:
        archive.add(task_folder())
    return (stolen() / "cache.tar").read_bytes()


def by_pickle():
    class Opens:
        def __reduce__(self):
            return open, (str(labels()), "rb")

    return pickle.loads(pickle.dumps(Opens())).read()


def by_a_thread_pool():
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(labels().read_bytes).result()


def by_asyncio():
    return asyncio.run(asyncio.to_thread(labels().read_bytes))


def by_a_handler_of_signals():
    found = []

    def handle(*rest):
        found.append(labels().read_bytes())

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    return found


def by_a_finalizer():
    class Opens:
        def __del__(self):
            labels().read_bytes()

    one = Opens()
    del one
    raise LookupError  # what a finalizer raises is lost: only the report counts
