"""The lock in the kernel of Linux (Landlock): labels are refused to a process and to all that it starts.

It holds for native code and other programs too, and keeps them from sending signals to other processes.
Elsewhere, only the tripwire of seal.py is set.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ssmlbench.core.paths import cache_root
from ssmlbench.core.sealed_files import CARD, LABELS
from ssmlbench.runs.seal import WRITTEN, SealedPlaces

READ_FILE = 1 << 2
PATH_BENEATH = 1
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
NO_NEW_PRIVILEGES = 38
SCOPES_SIGNALS, SIGNAL = 6, 1 << 1
"""The version of the interface that can keep signals inside, and the bit that asks for it."""
THREADS = Path("/proc/self/task")
MAX_RULES = 20_000


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def kernel_can_lock() -> bool:
    """Whether this machine's kernel has Landlock."""
    return _interface() > 0


def signals_are_kept() -> bool:
    """Whether the kernel keeps a locked process from sending signals to others (Linux 6.12)."""
    return _interface() >= SCOPES_SIGNALS


def has_threads() -> bool:
    """Whether this process has other threads than this one (Linux)."""
    return len(list(THREADS.iterdir())) > 1


def _interface() -> int:
    """The version of the kernel's interface; 0 or less: it has none."""
    if not sys.platform.startswith("linux"):
        return 0
    version = 1  # asks for the version
    return int(ctypes.CDLL(None).syscall(CREATE_RULESET, None, 0, version))


def lock_labels(places: SealedPlaces, needed: Iterable[Path], scratch: Path) -> bool:
    """Have the kernel refuse labels to this process and its children; False where it cannot.

    The lock is that of this thread and of what it starts: there should be no other one (`has_threads`).

    needed: files and folders that stay readable although they may lie in one of these folders.
    scratch: for temporary files, if the usual folder for them is above sealed ones.
    """
    if not kernel_can_lock():
        return False
    with suppress(OSError):
        # What is made after the lock, beside what is sealed, could not be read.
        for name in WRITTEN:
            (cache_root() / name).mkdir(parents=True, exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    # A kernel without the last fields takes them if they are zero.
    rules = _Ruleset(READ_FILE, 0, SIGNAL if signals_are_kept() else 0)
    ruleset = libc.syscall(CREATE_RULESET, ctypes.byref(rules), ctypes.sizeof(rules), 0)
    if ruleset < 0:
        return False
    try:
        inside = [os.path.realpath(path) for path in needed]
        if places.raw:
            inside += map(str, Path(places.raw).glob("*.py"))
        sealed = _sealed_paths(places)
        allowed = _allowed(sealed, inside)
        if len(allowed) > MAX_RULES and places.other_results:
            sealed = _sealed_paths(replace(places, other_results=()))
            allowed = _allowed(sealed, inside)
        if len(allowed) > MAX_RULES:
            return False
        for path in allowed:
            with suppress(OSError):  # it is gone meanwhile, or cannot be looked into
                _allow(libc, ruleset, path, places.inodes)
        temporary = tempfile.gettempdir()
        if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.syscall(RESTRICT_SELF, ruleset, 0):
            return False
    finally:
        os.close(ruleset)
    if any(path.startswith(os.path.realpath(temporary) + os.sep) for path in sealed):
        scratch.mkdir(parents=True, exist_ok=True)
        tempfile.tempdir = os.environ["TMPDIR"] = str(scratch)
    return True


def _sealed_paths(places: SealedPlaces) -> list[str]:
    """The folders and files that no rule may allow: of prepared data, labels and cards only."""
    tasks = Path(places.tasks).glob("*")
    labels = [os.path.realpath(folder / name) for folder in tasks for name in (LABELS, CARD)]
    return [*labels, *(place for place in places.roots() if place != places.tasks)]


def _allowed(sealed: list[str], inside: Iterable[str]) -> list[Path]:
    """The folders and files to allow. inside: those that may lie in a sealed folder."""
    allowed = list(_all_but(Path("/"), sealed))
    for spot in inside:
        below = [place for place in sealed if not f"{spot}{os.sep}".startswith(place + os.sep)]
        if len(below) < len(sealed):
            allowed += _all_but(Path(spot), below)
    return allowed


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


def _allow(libc: Any, ruleset: int, path: Path, but: frozenset[tuple[int, int]]) -> None:
    """Allow reading below a path. A rule is for a file, not for its name: `but` are left out."""
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) in but:
            return
        rule = _Beneath(READ_FILE, descriptor)
        libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)
