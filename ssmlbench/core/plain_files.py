"""Reads files that may be something else: a pipe would be waited on for ever, a device has no end."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

from ssmlbench.core.errors import with_file_name

HOLLOW = "nearly all of it was never written (a sparse file)"
LARGE, WRITTEN = 2**30, 1000
"""A larger file, of which not one byte in so many is on the disk, would only fill the memory with zeros."""


def is_hollow(facts: os.stat_result) -> bool:
    """Whether a large file has nearly no content on the disk; its size is what somebody typed."""
    written = getattr(facts, "st_blocks", facts.st_size) * 512
    return facts.st_size > LARGE and written * WRITTEN < facts.st_size


def plain_bytes(file: Path) -> bytes:
    """The content of a file; an OSError if it is a folder, a pipe or a device."""
    try:
        with open(file, "rb", opener=_not_waiting) as opened:
            facts = os.fstat(opened.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise OSError(errno.EINVAL, "it is not a file", str(file))
            if is_hollow(facts):
                raise OSError(errno.EINVAL, HOLLOW, str(file))
            return opened.read()
    except OSError as error:
        raise with_file_name(error, file) from None


def plain_text(file: Path) -> io.StringIO:
    """The text of a file in UTF-8, opened as the csv module needs it; errors as in `plain_bytes`.

    Spreadsheet programs put a mark of the encoding in front.
    """
    return io.StringIO(plain_bytes(file).decode("utf-8-sig"), newline="")


def _not_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # to open a pipe waits for its other end
