"""A second round of ways to labels: each function returns what it found, or raises."""

import asyncio
import ctypes
import fcntl
import json
import mmap
import os
import pickle
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import shared_memory
from pathlib import Path

import numpy as np


def task_folder():
    (folder,) = (Path(os.environ["SSMLBENCH_CACHE"]) / "tasks").glob("noise-*[!k]")
    return folder


def labels():
    return task_folder() / "labels" / "test.arrow"


def stolen():
    return Path(os.environ["STOLEN"])


def by_mmap_of_the_whole_file():
    with labels().open("r+b") as opened:
        return bytes(mmap.mmap(opened.fileno(), 0))


def by_fromfile():
    return np.fromfile(labels(), np.uint8)


def by_genfromtxt():
    return np.genfromtxt(labels())


def by_torch_from_file():
    import torch

    return torch.from_file(str(labels()), size=8, dtype=torch.uint8)


def by_torch_storage():
    import torch

    return torch.UntypedStorage.from_file(str(labels()), False, 8)


def by_torch_load():
    import torch

    return torch.load(labels(), weights_only=False)


def by_safetensors_of_another_run():
    from safetensors import safe_open

    (file, *_) = (stolen() / "results").rglob("scores.safetensors")
    with safe_open(file, "numpy") as opened:
        return opened.get_tensor("truth")


def by_pandas():
    import pandas as pd

    return pd.read_feather(labels())


def by_arrow_dataset():
    import pyarrow.dataset

    return pyarrow.dataset.dataset(str(labels()), format="arrow").to_table()


def by_sqlite_attach():
    import sqlite3

    (file, *_) = (Path(os.environ["SSMLBENCH_CACHE"]) / "index").glob("*.sqlite")
    opened = sqlite3.connect(":memory:")
    opened.execute(f"ATTACH 'file:{file}?mode=ro' AS other")
    return opened.execute("SELECT * FROM other.sqlite_master").fetchall()


def by_path_of_bytes():
    return open(os.fsencode(labels()), "rb").read()  # noqa: PTH123


def by_path_with_dots():
    return Path(f"{task_folder()}/labels/../labels/./test.arrow").read_bytes()


def by_proc_self_root():
    return Path(f"/proc/self/root{labels()}").read_bytes()


def by_proc_self_cwd():
    before = Path.cwd()
    os.chdir(task_folder())
    try:
        return Path("/proc/self/cwd/labels/test.arrow").read_bytes()
    finally:
        os.chdir(before)


def by_working_folder():
    before = Path.cwd()
    os.chdir(task_folder() / "labels")
    try:
        return Path("test.arrow").read_bytes()
    finally:
        os.chdir(before)


def by_descriptor_of_a_path():
    """O_PATH opens nothing; /proc/self/fd then does."""
    handle = ctypes.CDLL(None).open(os.fsencode(labels()), os.O_PATH)
    return Path(f"/proc/self/fd/{handle}").read_bytes()


def by_descriptor_of_a_path_in_libc():
    libc = ctypes.CDLL(None, use_errno=True)
    handle = libc.open(os.fsencode(labels()), os.O_PATH)
    file = libc.open(f"/proc/self/fd/{handle}".encode(), os.O_RDONLY)
    if file < 0:
        raise OSError(ctypes.get_errno(), "open")
    return os.read(file, 100)


def by_inherited_descriptors():
    """Everything that is open since before the seal."""
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
            content = os.pread(int(link.name), 100, 0)
        except OSError:
            continue
        if any(part in target for part in ("labels", "card.json", "result", "scores", "index")):
            return content
    raise LookupError


def by_a_link_that_is_swapped():
    """The watch sees a harmless file, the system opens the other one: tried a thousand times."""
    link, harmless = stolen() / "swapped", stolen() / "harmless"
    harmless.write_bytes(b"nothing")
    libc = ctypes.CDLL(None)
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            for target in (labels(), harmless):
                libc.symlink(os.fsencode(target), os.fsencode(f"{link}.new"))
                libc.rename(os.fsencode(f"{link}.new"), os.fsencode(link))

    thread = threading.Thread(target=swap)
    thread.start()
    failures = []
    try:
        for _ in range(300):
            try:
                content = link.read_bytes()
            except OSError as error:
                failures.append(error)
                continue
            if content not in (b"nothing", b""):
                return content
    finally:
        stop.set()
        thread.join()
    raise next(
        (e for e in failures if "sealed" in str(e)), failures[-1] if failures else LookupError
    )


def by_a_path_that_changes():
    """An os.PathLike that answers the watch with one path and the system with another."""

    class Changing:
        asked = 0

        def __fspath__(self):
            Changing.asked += 1
            return str(labels() if Changing.asked == 1 else "/dev/null")

    return Path(os.open(Changing(), os.O_RDONLY))


def by_a_text_that_changes():
    """A str whose methods lie."""

    class Liar(str):
        __slots__ = ()

        def startswith(self, *rest):
            return False

        def endswith(self, *rest):
            return False

        def __str__(self):
            return "/dev/null"

        def __fspath__(self):
            return "/dev/null"

        def encode(self, *rest):
            return b"/dev/null"

    return open(Liar(labels()), "rb").read()  # noqa: PTH123


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


def by_trace_function():
    """Looks into the frames of the watch itself, and changes what it compares with."""
    seen = []

    def trace(frame, event, argument):
        if frame.f_code.co_name in ("sealed", "hook", "is_sealed", "sealed_place"):
            seen.append(frame.f_code.co_name)
            frame.f_locals.clear()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return labels().read_bytes()
    finally:
        sys.settrace(before)


def by_closure_of_the_watch():
    """Empties the cells of every function that tells whether a path is sealed."""
    import gc
    import types

    for function in gc.get_objects():
        if type(function) is types.FunctionType and function.__name__ in (
            *("sealed", "sealed_place", "same_file", "hook", "is_above"),
        ):
            function.__code__ = (lambda *rest: False).__code__.replace(
                co_freevars=function.__code__.co_freevars
            )
    return labels().read_bytes()


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


def by_memory_of_others():
    for block in Path("/dev/shm").glob("*"):
        with suppress(OSError):  # a block of another program, of another kind
            shared_memory.SharedMemory(block.name).close()
    raise LookupError


def by_sockets():
    """Asks every socket of the machine that has a name."""
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        name = line.split()[-1]
        if "ssmlbench" in name:
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(name.replace("@", "\0"))
                return one.recv(10)
    raise LookupError


def by_lock_of_the_file():
    with labels().open("ab") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        return opened.tell()


def by_sendfile():
    libc = ctypes.CDLL(None, use_errno=True)
    file = libc.open(os.fsencode(labels()), os.O_RDONLY)
    inside, outside = os.pipe()
    os.sendfile(outside, file, 0, 100)
    return os.read(inside, 100)


def by_a_raw_system_call():
    """openat2, which no library wraps."""
    libc = ctypes.CDLL(None, use_errno=True)
    how = (ctypes.c_uint64 * 3)(os.O_RDONLY, 0, 0)
    file = libc.syscall(437, -100, os.fsencode(labels()), how, 24)
    if file < 0:
        raise OSError(ctypes.get_errno(), "openat2")
    return os.read(file, 100)


def by_a_namespace():
    libc = ctypes.CDLL(None, use_errno=True)
    new_user, new_mount = 0x10000000, 0x20000
    if libc.unshare(new_user | new_mount):
        raise OSError(ctypes.get_errno(), "unshare")
    return read_natively(labels())


def by_execveat_of_a_script():
    import subprocess

    return subprocess.run(
        [sys.executable, "-c", f"print(open({str(labels())!r}, 'rb').read())"],
        capture_output=True,
        check=True,
    ).stdout


def by_moved_run():
    """Another run's folder under another name."""
    (file, *_) = (stolen() / "results").rglob("result.json")
    file.parent.rename(stolen() / "moved-run")
    return json.loads((stolen() / "moved-run" / "result.json").read_text())


def by_linked_run():
    (file, *_) = (stolen() / "results").rglob("result.json")
    (stolen() / "linked-run").symlink_to(file.parent)
    return json.loads((stolen() / "linked-run" / "result.json").read_text())


def by_own_folder_moved():
    """The judge would write into the folder that takes its place."""
    (spec, *_) = (
        f for f in (stolen() / "results").rglob("*") if f.is_dir() and f.parent.name == "cheat"
    )
    spec.rename(spec.with_name("elsewhere"))
    raise LookupError


def read_natively(path):
    libc = ctypes.CDLL(None, use_errno=True)
    file = libc.open(os.fsencode(path), os.O_RDONLY)
    if file < 0:
        raise OSError(ctypes.get_errno(), "open")
    return os.read(file, 100)


WAYS = {name: value for name, value in globals().items() if name.startswith("by_")}

REFUSED_BY_THE_KERNEL = (
    *("by_torch_from_file", "by_torch_storage", "by_safetensors_of_another_run"),
    *("by_arrow_dataset", "by_sqlite_attach", "by_descriptor_of_a_path_in_libc", "by_sendfile"),
    *("by_a_raw_system_call", "by_a_namespace", "by_execveat_of_a_script"),
    "by_closure_of_the_watch",
)
"""Native code, or the watch in Python was taken apart."""
FINDS_NOTHING = ("by_inherited_descriptors", "by_memory_of_others", "by_sockets")
RACES = ("by_a_link_that_is_swapped",)
"""Reported, or refused by the kernel: whoever looks at the moment when it points to the labels."""
HIDES_ITS_ERROR = ("by_a_finalizer",)
"""Reported, and what it raises is lost."""
