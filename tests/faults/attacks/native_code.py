"""Files opened by native code, which Python does not see: only the kernel can refuse them."""

import ctypes
import os
import sqlite3
import ssl
from pathlib import Path

import numpy as np

from tests.faults.attacks.places import (
    LABELS,
    TEST_ROWS,
    elsewhere,
    index_of_results,
    judgements,
    label_bytes,
    labels,
    matrix,
    other_cache,
    read_in_libc,
    stolen,
    task_folder,
)


def from_native_code():
    import pyarrow as pa

    with pa.memory_map(str(labels())) as mapped:
        return label_bytes(mapped.read())


def from_rust():
    from safetensors.numpy import load_file

    (file, *_) = (stolen() / "results").rglob("scores.safetensors")
    return load_file(file)["truth"].astype(float)


def from_judgements_in_rust():
    from safetensors.numpy import load_file

    return load_file(judgements())


def from_datasets_library():
    import datasets

    rows = datasets.Dataset.from_file(str(labels()))
    return matrix(rows["labels"])


def by_torch_from_file():
    import torch

    return torch.from_file(str(labels()), size=8, dtype=torch.uint8)


def by_torch_storage():
    import torch

    return torch.UntypedStorage.from_file(str(labels()), False, 8)


def by_torchscript():
    import torch

    return torch.jit.load(str(labels()))


def by_safetensors_of_another_run():
    from safetensors import safe_open

    (file, *_) = (stolen() / "results").rglob("scores.safetensors")
    with safe_open(file, "numpy") as opened:
        return opened.get_tensor("truth")


def by_scores_of_another_results_folder():
    from safetensors.numpy import load_file

    return load_file(elsewhere() / "scores.safetensors")["truth"]


def by_arrow_dataset():
    import pyarrow.dataset

    return pyarrow.dataset.dataset(str(labels()), format="arrow").to_table()


def by_arrow_csv():
    import pyarrow.csv

    return pyarrow.csv.read_csv(str(labels()))


def by_sqlite_attach():
    opened = sqlite3.connect(":memory:")
    opened.execute(f"ATTACH 'file:{index_of_results()}?mode=ro' AS other")
    return opened.execute("SELECT * FROM other.sqlite_master").fetchall()


def by_certificates():
    return ssl.create_default_context(cafile=str(labels()))


def by_loading_a_library():
    return ctypes.CDLL(str(labels()))


def from_libc():
    return label_bytes(read_in_libc(labels()))


def from_hard_link_in_libc():
    libc = ctypes.CDLL(None, use_errno=True)
    link = stolen() / "hard"
    if libc.link(os.fsencode(labels()), os.fsencode(link)):
        raise OSError(ctypes.get_errno(), "link")
    return label_bytes(link.read_bytes())


def from_index_in_libc():
    return read_in_libc(index_of_results())


def from_linked_raw_file_in_libc():
    return read_in_libc(stolen() / "raw" / "labels.csv")


def by_descriptor_of_a_path_in_libc():
    libc = ctypes.CDLL(None, use_errno=True)
    handle = libc.open(os.fsencode(labels()), os.O_PATH)
    file = libc.open(f"/proc/self/fd/{handle}".encode(), os.O_RDONLY)
    if file < 0:
        raise OSError(ctypes.get_errno(), "open")
    return os.read(file, 100)


def by_what_loggers_keep_in_libc():
    (file,) = Path(f"{stolen() / 'results'}-logs").rglob("events.*")
    return read_in_libc(file)


def by_another_cache_in_libc():
    return read_in_libc(other_cache())


def by_a_link_below_the_raw_folder_in_libc():
    return read_in_libc(stolen() / "storage" / "annotations.csv")


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
    return read_in_libc(labels())


def from_file_handle():
    """`open_by_handle_at`: a file without its path, for root."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = ctypes.create_string_buffer(b"\x80\0\0\0", 256)
    mount, here = ctypes.c_int(), -100
    path = os.fsencode(labels())
    if libc.name_to_handle_at(here, path, handle, ctypes.byref(mount), 0):
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    root = libc.open(b"/tmp", os.O_RDONLY | os.O_DIRECTORY)
    file = libc.open_by_handle_at(root, handle, os.O_RDONLY)
    if file < 0:
        raise OSError(ctypes.get_errno(), "open_by_handle_at")
    return np.ones((TEST_ROWS, LABELS))


def from_bind_mount():
    libc = ctypes.CDLL(None, use_errno=True)
    place = stolen() / "mounted"
    place.mkdir()
    bind = 4096
    if libc.mount(os.fsencode(task_folder() / "labels"), os.fsencode(place), None, bind, None):
        raise OSError(ctypes.get_errno(), "mount")
    return label_bytes((place / "test.arrow").read_bytes())
