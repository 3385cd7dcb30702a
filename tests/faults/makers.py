"""Faults of a disk: each takes a file and a random generator, and damages the file in place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

Fault = Callable[[Path, Random], None]


def flip(file: Path, random: Random) -> None:
    """One bit of one byte."""
    content = bytearray(file.read_bytes())
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    file.write_bytes(content)


def flip_silently(file: Path, random: Random) -> None:
    """One bit of one byte, with the file's time as it was: what a failing disk does."""
    times = file.stat()
    flip(file, random)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def truncate(file: Path, random: Random) -> None:
    """Only the first part is left."""
    content = file.read_bytes()
    file.write_bytes(content[: random.randrange(1, len(content))])


def zero_fill(file: Path, random: Random) -> None:
    """The right size and nothing in it: what a power cut leaves on some file systems."""
    file.write_bytes(bytes(file.stat().st_size))


def zero_tail(file: Path, random: Random) -> None:
    """The last part never reached the disk."""
    content = file.read_bytes()
    kept = random.randrange(len(content))
    file.write_bytes(content[:kept] + bytes(len(content) - kept))


def empty(file: Path, random: Random) -> None:
    """Nothing is left."""
    file.write_bytes(b"")


def delete(file: Path, random: Random) -> None:
    """The file is gone."""
    file.unlink()


def garbage(file: Path, random: Random) -> None:
    """Random bytes in the middle."""
    content = bytearray(file.read_bytes())
    start = random.randrange(len(content))
    stop = min(len(content), start + random.randrange(1, 512))
    content[start:stop] = random.randbytes(stop - start)
    file.write_bytes(content)


FAULTS: dict[str, Fault] = {
    "flip": flip,
    "flip silently": flip_silently,
    "truncate": truncate,
    "zero-fill": zero_fill,
    "zero tail": zero_tail,
    "empty": empty,
    "delete": delete,
    "garbage": garbage,
}
