"""Locks between processes: at most one holder, free again when the holder's process has ended.

Where the file system has flock, the kernel frees the lock of a killed process at once. Elsewhere, and
with SSMLBENCH_LOCKS=lease, the holder owns a lease: a file that it touches every few seconds. Another
process takes it over when it saw no touch for `FRESH_SECONDS`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from ssmlbench.core.errors import UserError, with_file_name
from ssmlbench.core.files import discard
from ssmlbench.core.keep_alive import FRESH_SECONDS, FUTURE_SECONDS, KeepAlive, is_fresh

POLL_SECONDS = 0.05
LEASE = ".lease."
NUMBER = re.compile("[0-9]{1,18}")
"""The number of a lease. A longer one is not ours: the next lease would have too long a name."""
NO_FLOCK = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
WAYS = ("flock", "lease")
"""Values of SSMLBENCH_LOCKS, the default first."""


class Busy(Exception):
    """Another process holds the lock."""


def _way() -> str:
    """How locks are held: SSMLBENCH_LOCKS. A misspelt `lease` would let two machines hold one lock."""
    way = os.environ.get("SSMLBENCH_LOCKS") or WAYS[0]
    if way not in WAYS:
        raise UserError(f"SSMLBENCH_LOCKS={way}: must be {' or '.join(WAYS)}")
    return way


class Lock:
    """A lock on a path. As a context manager it waits for the lock, and deletes the file at the end."""

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self._descriptor: int | None = None
        self._lease: _Lease | None = None

    def acquire(self, wait: bool = True) -> None:
        """Hold the lock; without `wait`, `Busy` is raised if another process has it."""
        if _way() != "lease":
            try:
                self._descriptor = _flocked(self.path, wait)
                return
            except OSError as error:
                if error.errno not in NO_FLOCK:
                    raise
        lease = _Lease(self.path)
        lease.acquire(wait)
        self._lease = lease

    def release(self, remove: bool = False) -> None:
        """Release the lock. remove: delete the file first, which is safe only while the lock is held.

        After its folder was moved away, the file of that name is another process's. A file that cannot be
        deleted is a free lock, and no reason to fail what was done under it.
        """
        with suppress(OSError):
            if remove and (self._descriptor is None or _is_at(self._descriptor, self.path)):
                self.path.unlink(missing_ok=True)
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    @property
    def lost(self) -> bool:
        """Whether the file was deleted or moved meanwhile: another process may hold the lock too.

        A lease that another process took over does not count: this one was suspended.
        """
        return self._descriptor is not None and not _is_at(self._descriptor, self.path)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release(remove=True)


def acquire_with_notice(lock: Lock, waits: Callable[[], None]) -> None:
    """Wait for a lock however long it takes; `waits` is called once if it is not free at once."""
    try:
        lock.acquire(wait=False)
    except Busy:
        waits()
        lock.acquire()


@contextmanager
def held_if_free(path: Path) -> Iterator[bool]:
    """Hold the lock on a path in the block if no other process has it; yield whether it is held.

    What a lock protects is deleted and repaired in such a block only: a lock that was merely seen to be
    free may be taken at the next moment.
    """
    lock = Lock(path)
    try:
        if is_held(path):  # by a lease or by flock, whichever of them this process would use
            raise Busy(str(path))
        lock.acquire(wait=False)
        free = True
    except Busy:
        free = False
    try:
        yield free
    finally:
        if free:
            lock.release(remove=True)


def is_lease(file: Path) -> bool:
    """Whether a file has the name of a lease of one of our locks, unlike `house.lease.pdf`."""
    lock, _, number = file.name.rpartition(LEASE)
    return lock.endswith(".lock") and NUMBER.fullmatch(number) is not None


def lock_of_lease(lease: Path) -> Path:
    """The path of the lock that a file of a lease belongs to."""
    return lease.with_name(lease.name.rpartition(LEASE)[0])


def is_dead_lease(lease: Path) -> bool:
    """Whether a lease is so old that it is dead, however the clocks of two hosts differ.

    So is one of a time far ahead, which a clock that was set back since has left.
    """
    try:
        return abs(time.time() - lease.stat().st_mtime) > FUTURE_SECONDS
    except OSError:
        return False


def remove_dead_leases(path: Path) -> None:
    """Delete the leases of a lock if all are dead; `Busy` if one may not be."""
    lease = _Lease(path)
    lease.acquire(wait=False)
    lease.release()


def is_held(path: Path) -> bool:
    """Whether a living process holds the lock on a path; this takes the lock for a moment.

    The answer may be out of date at once: it is for people to read. Code uses `held_if_free`.
    """
    if any(is_fresh(file) for _, file in _leases(path)):
        return True
    if not path.exists():
        return False
    try:
        # At once, if it is a pipe: to open one waits for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:  # another user's file, or one that is gone: not known
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _flocked(path: Path, wait: bool) -> int:
    """A descriptor of the file at `path`, locked. A file that was deleted meanwhile does not count."""
    while True:
        descriptor = _open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if _is_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise Busy(str(path)) from None
        except OSError as error:
            os.close(descriptor)
            raise with_file_name(error, path) from None
        except BaseException:
            os.close(descriptor)
            raise
        # The last holder deleted the file: nobody else will ever open the one that we have locked.
        os.close(descriptor)


def _open(path: Path, flags: int) -> int:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return os.open(path, flags | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:  # the last holder may delete the folder too
            if path.is_symlink():  # a link to nothing counts as missing
                path.unlink(missing_ok=True)
        except OSError as error:  # so do a circular link and an empty folder
            if error.errno not in (errno.ELOOP, errno.EISDIR):
                raise
            discard(path)


def _is_at(descriptor: int, path: Path) -> bool:
    held = os.fstat(descriptor)
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino)


class _Lease:
    """A file <path>.lease.<n>: only one process can create it, and the highest living n holds."""

    def __init__(self, path: Path):
        self.path = path
        self.file = path
        self._token = secrets.token_bytes(16)
        self._alive: KeepAlive | None = None
        # file → the time of its last touch, and when we first saw that time
        self._seen: dict[Path, tuple[int, float]] = {}

    def acquire(self, wait: bool) -> None:
        while not self._try():
            if not wait and not self._all_dead(_leases(self.path)):
                raise Busy(str(self.path))
            time.sleep(POLL_SECONDS * (1 + random.random()))
        self._alive = KeepAlive(self.file)
        self._alive.__enter__()

    def _try(self) -> bool:
        """Create the next lease if all others are dead; hold it if that is still so afterwards."""
        others = _leases(self.path)
        if not self._all_dead(others):
            return False
        number = 1 + max((n for n, _ in others), default=-1)
        self.file = self.path.with_name(f"{self.path.name}{LEASE}{number}")
        try:
            descriptor = _open(self.file, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return False
        try:
            os.write(descriptor, self._token)
        finally:
            os.close(descriptor)
        others = [(n, file) for n, file in _leases(self.path) if file != self.file]
        if any(n > number for n, _ in others) or not self._all_dead(others):
            self.file.unlink(missing_ok=True)
            return False
        for _, dead in others:
            with suppress(OSError):  # a folder with something in it: it stays dead
                discard(dead)
        return True

    def _all_dead(self, leases: list[tuple[int, Path]]) -> bool:
        """Whether none was touched for FRESH_SECONDS by our own clock: those of two hosts may differ.

        Those of `is_dead_lease` are dead at first sight.
        """
        alive = False
        for _, file in leases:
            try:
                touched = file.stat().st_mtime_ns
            except FileNotFoundError:
                continue
            if is_dead_lease(file):
                continue
            if file not in self._seen or self._seen[file][0] != touched:
                self._seen[file] = touched, time.monotonic()
            alive |= time.monotonic() - self._seen[file][1] < FRESH_SECONDS
        return not alive

    def release(self) -> None:
        if self._alive is not None:
            self._alive.__exit__()
        with suppress(OSError):
            # Another process may have taken it over while this one was suspended.
            if self.file.read_bytes() == self._token:
                self.file.unlink()


def _leases(path: Path) -> list[tuple[int, Path]]:
    """The leases of a lock, with their numbers."""
    start = f"{path.name}{LEASE}"
    try:
        names = [file.name for file in path.parent.iterdir()]
    except FileNotFoundError:
        return []
    ends = [name.removeprefix(start) for name in names if name.startswith(start)]
    return [(int(end), path.with_name(f"{start}{end}")) for end in ends if NUMBER.fullmatch(end)]
