"""Faults of a disk: each takes a file and a random generator, and damages the file in place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

PAGE = 4096
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


def truncate_at_page(file: Path, random: Random) -> None:
    """Whole pages of the start are left, or half of a small file."""
    size = file.stat().st_size
    pages = size // PAGE
    os.truncate(file, PAGE * random.randrange(1, pages + 1) if size % PAGE and pages else size // 2)


def repeat(file: Path, random: Random) -> None:
    """A block stands where the one behind it should be: the size is right."""
    content = bytearray(file.read_bytes())
    size = max(1, len(content) // 4)
    start = random.randrange(len(content) - size + 1)
    content[start : start + size] = content[:size]
    if bytes(content) == file.read_bytes():
        content[-1] ^= 1
    file.write_bytes(content)


def swap_bytes(file: Path, random: Random) -> None:
    """Every pair of bytes the other way round, as on a machine of the other kind."""
    content = bytearray(file.read_bytes())
    even = len(content) // 2 * 2
    content[0:even:2], content[1:even:2] = content[1:even:2], content[0:even:2]
    file.write_bytes(content)


def grow(file: Path, random: Random) -> None:
    """Written to once more by something else."""
    with file.open("ab") as opened:
        opened.write(random.randbytes(random.randrange(1, 5000)))


def twice(file: Path, random: Random) -> None:
    """The content stands there two times."""
    file.write_bytes(2 * file.read_bytes())


def old_time(file: Path, random: Random) -> None:
    """Another content, and the time of a file that was restored from a backup."""
    flip(file, random)
    os.utime(file, (1e9, 1e9))


def folder_instead(file: Path, random: Random) -> None:
    """A folder of that name."""
    file.unlink()
    file.mkdir()


def pipe_instead(file: Path, random: Random) -> None:
    """A pipe of that name: to open it waits until someone writes."""
    file.unlink()
    os.mkfifo(file)


def link_loop(file: Path, random: Random) -> None:
    """A link to itself."""
    file.unlink()
    file.symlink_to(file)


def dangling_link(file: Path, random: Random) -> None:
    """A link to a disk that is not there."""
    file.unlink()
    file.symlink_to("/nowhere/at/all")


def linked_copy(file: Path, random: Random) -> None:
    """A link to a file elsewhere, which is damaged."""
    elsewhere = file.with_name(f"elsewhere-{file.name}.bak")
    file.rename(elsewhere)
    flip(elsewhere, random)
    file.symlink_to(elsewhere)


FAULTS: dict[str, Fault] = {
    "flip": flip,
    "flip silently": flip_silently,
    "truncate": truncate,
    "zero-fill": zero_fill,
    "zero tail": zero_tail,
    "empty": empty,
    "delete": delete,
    "garbage": garbage,
    "truncate at page": truncate_at_page,
    "repeat": repeat,
    "swap bytes": swap_bytes,
    "grow": grow,
    "twice": twice,
    "old time": old_time,
    "folder instead": folder_instead,
    "pipe instead": pipe_instead,
    "link loop": link_loop,
    "dangling link": dangling_link,
    "linked copy": linked_copy,
}
