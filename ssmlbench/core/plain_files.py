"""Reads files that may be something else: a pipe would be waited on for ever, a device has no end."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

from ssmlbench.core.errors import with_file_name


def plain_bytes(file: Path) -> bytes:
    """The content of a file; an OSError if it is a folder, a pipe or a device."""
    try:
        with open(file, "rb", opener=_not_waiting) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise OSError(errno.EINVAL, "it is not a file", str(file))
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
