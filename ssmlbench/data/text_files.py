"""Text files as users have them: plain or packed, in UTF-8 or with the mark of UTF-16 or UTF-32."""

from __future__ import annotations

import codecs
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TextIO

from ssmlbench.core.errors import UserError
from ssmlbench.core.plain_files import HOLLOW, is_hollow, plain_bytes
from ssmlbench.data.packed_files import PACKINGS

MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16: it starts with the same two bytes
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
LONGEST_ROW = 2**26
"""Characters of a row. A packed file of a few bytes may hold a row of gigabytes."""
MANY_ROWS, ROWS_PER_BYTE = 2**20, 100
"""So many rows, and so many for each byte of their file, are rows of one content, over and over."""
UNPACKED_TIMES = 200
"""A packed file that is read at once may be so many times as large, and one row."""
PACKABLE = (".csv", ".tsv", ".jsonl", ".json")
"""Formats that are read packed too."""


def file_ending(file: Path) -> str:
    """The end of a file's name that tells the format: `.csv` of `a.csv`, `a.CSV` and `a.csv.gz`."""
    endings = [ending.lower() for ending in file.suffixes[-2:]]
    if len(endings) == 2 and endings[1] in PACKINGS and endings[0] in PACKABLE:
        return endings[0]
    return file.suffix.lower()


def bare_name(file: Path) -> str:
    """The name of a file without that end: `a` of `a.csv.gz`."""
    packed = file_ending(file) != file.suffix.lower()
    return Path(file.stem).stem if packed else file.stem


def check_rows(file: Path, rows: int) -> None:
    """Raise a UserError if a file has far more rows than rows of different content can be packed in it."""
    if rows > MANY_ROWS and rows > ROWS_PER_BYTE * (size := file.stat().st_size):
        raise UserError(
            f"{file}: {rows:,} rows or more in {size:,} bytes: nearly all of them must be equal; write "
            "equal rows once"
        )


class RowLines:
    """The lines of a text file; a UserError for a row, of one line or several, that is far too long.

    Also for far too many rows, which only a packed file can have.
    """

    def __init__(self, file: Path, text: TextIO):
        self.file = file
        self._text = text
        self._taken = 0
        self._rows = 0

    def start_row(self) -> None:
        """From here on, lines are of the next row."""
        self._taken = 0
        self._rows += 1
        if not self._rows % MANY_ROWS:
            check_rows(self.file, self._rows + 1)

    def __iter__(self) -> RowLines:
        return self

    def __next__(self) -> str:
        line = self._text.readline(LONGEST_ROW)
        if not line:
            raise StopIteration
        self._taken += len(line)
        if self._taken >= LONGEST_ROW:
            raise UserError(f"{self.file}: a row of more than {LONGEST_ROW:,} characters")
        return line


def read_rest(file: Path, text: TextIO) -> str:
    """The rest of a text file; a UserError if it is packed and far larger than any text of its size."""
    if file_ending(file) == file.suffix.lower():
        return text.read()
    most = LONGEST_ROW + UNPACKED_TIMES * file.stat().st_size
    rest = text.read(most)
    if len(rest) == most:
        raise UserError(
            f"{file}: more than {most:,} characters are packed in {file.stat().st_size:,} bytes; "
            "unpack it first"
        )
    return rest


def check_plain(file: Path) -> None:
    """Raise a UserError unless it is a file with content: a pipe or a device has no end."""
    if not file.exists():
        raise UserError(f"{file}: no such file")
    if not file.is_file():
        raise UserError(f"{file}: not a plain file (a folder, a pipe or a device)")
    if is_hollow(file.stat()):
        raise UserError(f"{file}: {HOLLOW}")


@contextmanager
def open_text(file: Path) -> Iterator[TextIO]:
    """Open a text file for reading, unpacked and decoded; line ends stay as they are.

    A byte that is not in the encoding is kept; `prepare` reports a text with one in it.
    """
    try:
        with open_bytes(file) as raw:
            start = raw.read(4)
            raw.seek(0)
            encoding = encoding_of(file, start)
            yield io.TextIOWrapper(raw, encoding=encoding, errors="surrogateescape", newline="")
    except UnicodeDecodeError as error:  # bytes below 128 cannot be kept: half a character, say
        raise UserError(
            f"{file}: not a whole text in {error.encoding} ({error.reason}); save it as UTF-8"
        ) from None
    except (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        if file.suffix.lower() not in PACKINGS:
            raise
        raise UserError(f"{file}: cannot be unpacked, is it damaged? ({error})") from None


def open_bytes(file: Path) -> IO[Any]:
    """Open a file for reading, unpacked."""
    if file_ending(file) == file.suffix.lower():
        return file.open("rb")
    unpacked: IO[Any] = PACKINGS[file.suffix.lower()](file)
    return unpacked


def encoding_of(file: Path, start: bytes) -> str:
    """The encoding of a text file by its first four bytes; without a mark it is UTF-8."""
    for mark, encoding in MARKS:
        if start.startswith(mark):
            return encoding
    if b"\0" in start:
        raise UserError(f"{file}: it is in UTF-16 or UTF-32 without a mark; save it as UTF-8")
    return "utf-8-sig"


def check_encoding(file: Path) -> None:
    """Raise a UserError for a file in UTF-16 or UTF-32, in which every line would be bad, or no file."""
    check_plain(file)
    with file.open("rb") as start:
        if encoding_of(file, start.read(4)).startswith(("utf-16", "utf-32")):
            raise UserError(f"{file}: it is in UTF-16 or UTF-32; save it as UTF-8")


def western_text(file: Path) -> str:
    """The text of an old file: UTF-8 if its bytes are that, else latin-1. ASCII is both.

    Any bytes are latin-1, so that a text in another encoding, or a packed one, would be misread.
    """
    check_encoding(file)
    content = plain_bytes(file)
    if b"\0" in content:
        raise UserError(f"{file}: it has zero bytes in it, as no text in latin-1 or UTF-8 has")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")
