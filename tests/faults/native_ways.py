"""Ways to labels past Python: native code, programs, the kernel. Only the kernel can refuse them."""

import ctypes
import os
import subprocess
from pathlib import Path

import numpy as np

from tests.faults.ways_to_labels import (
    LABELS,
    TEST_ROWS,
    index_of_results,
    judgements,
    label_bytes,
    matrix,
    task_folder,
)


def read_in_libc(path):
    libc = ctypes.CDLL(None, use_errno=True)
    file = libc.open(os.fsencode(path), os.O_RDONLY)
    if file < 0:
        raise OSError(ctypes.get_errno(), "open")
    content = ctypes.create_string_buffer(1 << 20)
    return content.raw[: libc.read(file, content, 1 << 20)]


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


def from_rust():
    from safetensors.numpy import load_file

    (file, *_) = Path(os.environ["STOLEN"], "results").rglob("scores.safetensors")
    return load_file(file)["truth"].astype(float)


def from_judgements_in_rust():
    from safetensors.numpy import load_file

    return load_file(judgements())


def from_libc():
    return label_bytes(read_in_libc(task_folder() / "labels" / "test.arrow"))


def from_hard_link_in_libc():
    libc = ctypes.CDLL(None, use_errno=True)
    link = Path(os.environ["STOLEN"]) / "hard"
    if libc.link(os.fsencode(task_folder() / "labels" / "test.arrow"), os.fsencode(link)):
        raise OSError(ctypes.get_errno(), "link")
    return label_bytes(link.read_bytes())


def from_judges_memory_in_libc():
    """`process_vm_readv`: another process's memory without a file."""
    libc = ctypes.CDLL(None, use_errno=True)
    here = ctypes.create_string_buffer(8)

    class Part(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    ours = Part(ctypes.addressof(here), 8)
    theirs = Part(id(None), 8)  # forked: it lies there in the judge too
    taken = libc.process_vm_readv(os.getppid(), ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
    if taken < 0:
        raise OSError(ctypes.get_errno(), "process_vm_readv")
    return np.ones((TEST_ROWS, LABELS))


def from_index_in_libc():
    return read_in_libc(index_of_results())


def from_linked_raw_file_in_libc():
    return read_in_libc(Path(os.environ["STOLEN"]) / "raw" / "labels.csv")


def from_datasets_library():
    import datasets

    rows = datasets.Dataset.from_file(str(task_folder() / "labels" / "test.arrow"))
    return matrix(rows["labels"])


def from_ptrace():
    libc = ctypes.CDLL(None, use_errno=True)
    attach = 16
    if libc.ptrace(attach, os.getppid(), None, None):
        raise OSError(ctypes.get_errno(), "ptrace")
    return np.ones((TEST_ROWS, LABELS))


def from_file_handle():
    """`open_by_handle_at`: a file without its path, for root."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = ctypes.create_string_buffer(b"\x80\0\0\0", 256)
    mount, here = ctypes.c_int(), -100
    path = os.fsencode(task_folder() / "labels" / "test.arrow")
    if libc.name_to_handle_at(here, path, handle, ctypes.byref(mount), 0):
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    root = libc.open(b"/tmp", os.O_RDONLY | os.O_DIRECTORY)
    file = libc.open_by_handle_at(root, handle, os.O_RDONLY)
    if file < 0:
        raise OSError(ctypes.get_errno(), "open_by_handle_at")
    return np.ones((TEST_ROWS, LABELS))


def from_bind_mount():
    libc = ctypes.CDLL(None, use_errno=True)
    place = Path(os.environ["STOLEN"]) / "mounted"
    place.mkdir()
    bind = 4096
    if libc.mount(os.fsencode(task_folder() / "labels"), os.fsencode(place), None, bind, None):
        raise OSError(ctypes.get_errno(), "mount")
    return label_bytes((place / "test.arrow").read_bytes())


STEALS = {name: value for name, value in globals().items() if name.startswith("from_")}
