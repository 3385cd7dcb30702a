"""Packed files: how each kind is opened, and read to its end."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from ssmlbench.core.errors import UserError

CHUNK = 2**16
Unpacker = Callable[[], Any]
"""Makes the object that unpacks one stream: with `decompress`, `eof`, `needs_input` and `unused_data`."""


class PackedStreams(io.RawIOBase):
    """The content of the bz2 or xz streams of a file, one after the other.

    Python's own readers take bytes after the first stream that are no stream for the end: rows that were
    appended and are damaged would be missing.
    """

    def __init__(self, file: Path, unpacker: Unpacker):
        self._file = file.open("rb")
        self._unpacker = unpacker
        self._restart()

    def _restart(self) -> None:
        self._stream, self._rest = self._unpacker(), b""

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can go back to its start."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go back to the start."""
        if offset or whence != io.SEEK_SET:
            raise io.UnsupportedOperation("a packed file can only go back to its start")
        self._file.seek(0)
        self._restart()
        return 0

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with what is unpacked next."""
        while True:
            if self._stream.eof and not self._next_stream():
                return 0
            given = self._packed() if self._stream.needs_input else b""
            if not given and self._stream.needs_input:
                raise EOFError("it ends in the middle")
            if found := self._stream.decompress(given, len(buffer)):
                buffer[: len(found)] = found
                return len(found)

    def _packed(self) -> bytes:
        given, self._rest = self._rest or self._file.read(CHUNK), b""
        return given

    def _next_stream(self) -> bool:
        """Begin the stream behind the present one; zeros between them fill blocks of a disk or tape."""
        rest = self._stream.unused_data
        while not (rest := rest.lstrip(b"\0")):
            if not (rest := self._file.read(CHUNK)):
                return False
        self._restart()
        self._rest = rest
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


def _bz2_streams(file: Path) -> IO[bytes]:
    return io.BufferedReader(PackedStreams(file, bz2.BZ2Decompressor))


def _xz_streams(file: Path) -> IO[bytes]:
    return io.BufferedReader(PackedStreams(file, lzma.LZMADecompressor))


def _zip_member(file: Path) -> IO[bytes]:
    archive = zipfile.ZipFile(file)
    names = [name for name in archive.namelist() if not name.endswith("/")]
    if len(names) != 1:
        raise UserError(f"{file}: {len(names)} files are packed in it, expected one; unpack it")
    return archive.open(names[0])


PACKINGS: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".bz2": _bz2_streams,
    ".xz": _xz_streams,
    ".zip": _zip_member,
}
"""How packed files are opened, by the end of their name."""
