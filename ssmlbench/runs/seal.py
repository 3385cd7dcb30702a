"""Closes the training process to the labels on disk: a tripwire in Python, and a lock in the kernel.

The tripwire reports every attempt that goes through Python. On Linux, Landlock refuses the files to the
process and to every program that it starts. Neither is needed for the labels to be absent from memory.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ssmlbench.core.paths import cache_root
from ssmlbench.data.task import CARD, LABELS

OF_FINISHED_RUNS = ("scores.safetensors", "diagnostics.safetensors")
"""They hold test labels, and how frequent hidden ones are."""
OF_ANY_RUN = ("result.json", "computed.json", "judgements.safetensors")
"""Sealed in the results folder: what test labels, or hidden ones, are like can be told from them."""
PROGRAMS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")
PATHS = {"open": 1, "os.rename": 2, "os.link": 2, "os.symlink": 1}
"""Audit events, and how many of their first arguments are paths that are looked at."""
MEMORY = ("mem", "root", "cwd", "fd", "map_files")


def set_tripwire(
    raw_folder: str,
    results: Path,
    needed: Iterable[Path],
    report: Callable[[str], None],
    note: Callable[[str], None],
) -> None:
    """From now on, refuse and report what opens labels in this process. It cannot be taken back.

    raw_folder: of the files that the data set was made of, "" if there is none.
    results: the results folder; what runs scored is sealed in it.
    needed: files and folders that stay readable although they may lie in the raw folder.
    """
    tasks, raw, own = _real(cache_root() / "tasks"), raw_folder and _real(raw_folder), os.getpid()
    runs = _real(results)
    realpath, fsdecode, basename = os.path.realpath, os.fsdecode, os.path.basename
    isabs, exists = os.path.isabs, os.path.exists
    inside_raw = [place for path in needed if (place := _real(path)).startswith(f"{raw}{os.sep}")]
    open_places, open_folders = frozenset(inside_raw), tuple(f"{p}{os.sep}" for p in inside_raw)

    def relative_to_a_folder(path: Any, place: str) -> bool:
        # `os.open` takes paths that are relative to an open folder, which the hook is not told.
        if isabs(path) or exists(place):
            return False
        *folders, name = Path(fsdecode(path)).parts or ("",)
        return LABELS in folders or name in (CARD, *OF_ANY_RUN)

    def sealed(path: Any) -> bool:
        if isinstance(path, int) or path is None:
            return False
        place = realpath(fsdecode(path))
        name = basename(place)
        if place.startswith(tasks + os.sep):
            return f"{os.sep}{LABELS}" in place[len(tasks) :] or name == CARD
        if place.startswith("/proc/"):
            parts = place.split("/")
            return len(parts) > 3 and parts[2] not in (str(own), "self") and parts[3] in MEMORY
        if name in OF_FINISHED_RUNS or relative_to_a_folder(path, place):
            return True
        if place.startswith(runs + os.sep) and name.endswith(OF_ANY_RUN):
            return True
        inside = bool(raw) and place.startswith(raw + os.sep)
        is_open = place in open_places or place.startswith(open_folders)
        return inside and not (name.endswith((".py", ".pyc")) or is_open)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in PATHS:
            for path in arguments[: PATHS[event]]:
                if sealed(path):
                    refuse(f"tried to open {path}")
        elif event == "ssmlbench.truth":
            refuse(f"tried to read the labels in {arguments[0]}")
        elif event == "ssmlbench.adapter":
            refuse(f"tried to read the data set {arguments[0]} anew")
        elif event in PROGRAMS:
            note(f"started another program while it trained: {_program(arguments)}")

    def refuse(what: str) -> None:
        report(what)
        raise PermissionError(f"{what}: labels are sealed")

    sys.addaudithook(hook)


def places_to_read() -> list[Path]:
    """Folders that training reads whatever the data set: a user's data may lie in a folder above them."""
    from huggingface_hub import constants
    from torch import hub

    models = [constants.HF_HOME, constants.HF_HUB_CACHE, hub.get_dir()]
    return [*map(Path, models), Path(sys.base_prefix), *(cache_root() / name for name in WRITTEN)]


def _program(arguments: tuple[Any, ...]) -> str:
    first = arguments[0] if arguments else ""
    return os.fsdecode(first) if isinstance(first, str | bytes | os.PathLike) else str(first)


def _real(path: Path | str) -> str:
    return os.path.realpath(path)


# -------------------------------------------------------------- the lock in the kernel of Linux

READ_FILE = 1 << 2
PATH_BENEATH = 1
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
NO_NEW_PRIVILEGES = 38
MAX_RULES = 20_000
WRITTEN = ("features", "decoded")
"""The folders of the cache that a training process writes to."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def kernel_can_lock() -> bool:
    """Whether this machine's kernel has Landlock."""
    if not sys.platform.startswith("linux"):
        return False
    version = 1  # asks for the version of the interface
    return int(ctypes.CDLL(None).syscall(CREATE_RULESET, None, 0, version)) > 0


def lock_labels(raw_folder: str, results: Path, needed: Iterable[Path], scratch: Path) -> bool:
    """Have the kernel refuse labels to this process and its children; False where it cannot.

    results: the results folder: finished runs hold test labels.
    needed: files and folders that stay readable although they may lie in one of these folders.
    scratch: for temporary files, if the usual folder for them is above sealed ones.
    """
    if not kernel_can_lock():
        return False
    with suppress(OSError):
        # What is made after the lock, beside what is sealed, could not be read.
        for name in WRITTEN:
            (cache_root() / name).mkdir(parents=True, exist_ok=True)
    tasks = list((cache_root() / "tasks").glob("*"))
    labels = [_real(folder / name) for folder in tasks for name in (LABELS, CARD)]
    raw = _real(raw_folder) if raw_folder and Path(raw_folder).exists() else ""
    sealed = [*labels, _real(results), *filter(None, [raw])]
    libc = ctypes.CDLL(None, use_errno=True)
    rules = _Ruleset(READ_FILE)
    ruleset = libc.syscall(CREATE_RULESET, ctypes.byref(rules), ctypes.sizeof(rules), 0)
    if ruleset < 0:
        return False
    try:
        allowed = list(_all_but(Path("/"), sealed))
        inside = [_real(path) for path in needed]
        if raw:
            inside += map(str, Path(raw).glob("*.py"))
        for spot in inside:
            below = [place for place in sealed if not f"{spot}{os.sep}".startswith(place + os.sep)]
            if len(below) < len(sealed):
                allowed += _all_but(Path(spot), below)
        if len(allowed) > MAX_RULES:
            return False
        for path in allowed:
            with suppress(OSError):  # it is gone meanwhile, or cannot be looked into
                _allow(libc, ruleset, path)
        temporary = tempfile.gettempdir()
        if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.syscall(RESTRICT_SELF, ruleset, 0):
            return False
    finally:
        os.close(ruleset)
    if any(path.startswith(_real(temporary) + os.sep) for path in sealed):
        scratch.mkdir(parents=True, exist_ok=True)
        tempfile.tempdir = os.environ["TMPDIR"] = str(scratch)
    return True


def _all_but(folder: Path, sealed: list[str]) -> Iterator[Path]:
    """The fewest folders and files that cover everything below `folder` but what is sealed."""
    here = str(folder)
    prefix = here if here.endswith(os.sep) else here + os.sep
    if here in sealed:
        return
    if not any(path.startswith(prefix) for path in sealed):
        yield folder
        return
    with suppress(OSError):
        for entry in os.scandir(folder):
            if not entry.is_symlink():
                yield from _all_but(Path(entry.path), sealed)


def _allow(libc: Any, ruleset: int, path: Path) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = _Beneath(READ_FILE, descriptor)
        libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)
