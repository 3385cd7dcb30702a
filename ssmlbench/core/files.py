"""Files that are written whole or not at all, and are on disk when they appear under their name.

Every file of a run or of a cache is written here: under another name, flushed to the disk, renamed, and
the folder flushed too, so that a power cut leaves the old file or the new one.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ssmlbench.core.checksums import (
    FIELD,
    OLDER,
    checksum_holds,
    own_bytes,
    place_of,
    with_checksum,
)
from ssmlbench.core.errors import DamagedFile, UserError
from ssmlbench.core.plain_text import valid_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    R = TypeVar("R", bound=DataclassInstance)


PLACE = "place"
"""The field of a JSON object of the cache that says where it belongs."""

PART = ".part"
"""The suffix of an unfinished file. Nothing reads such files; `ssmlbench doctor` deletes them."""

OS_ERROR = re.compile(r"\(os error (\d{1,4})\)")
"""How libraries written in Rust, such as safetensors, end the message about an error of the disk."""

Stamp = tuple[int, int, int]
"""Inode, size and time of a file."""


def file_stamp(file: Path | str) -> Stamp:
    """A stamp that changes when a file is written again."""
    stat = os.stat(file)  # noqa: PTH116 (a Path takes three times as long)
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def temporary_beside(file: Path) -> Path:
    """A temporary name in the same folder, so that the rename at the end is atomic.

    It is unique among threads, processes and hosts.
    """
    own = f"{_host()}-{os.getpid()}-{secrets.token_hex(4)}"
    return file.with_name(f".{file.name[:100]}.{own}{PART}")


def _host() -> str:
    return "".join(c if c.isalnum() or c == "-" else "_" for c in socket.gethostname())[:40]


@contextmanager
def atomic(file: Path, durable: bool = True) -> Iterator[Path]:
    """Write a file whole or not at all: write to the yielded path, which is renamed to `file` at the end.

    durable: wait until it is on disk; not needed for files that are useful only while a process lives.
    An error of the disk is an OSError that names the file, whichever library writes.
    """
    unfinished = temporary_beside(file)
    try:
        yield unfinished
        if durable:
            flush(unfinished)
        with suppress(OSError):
            file.rmdir()  # an empty folder of that name
        unfinished.replace(file)
        if durable:
            flush(file.parent)
    except BaseException as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        if (disk_error := _disk_error_of(error, file)) is not None:
            raise disk_error from error
        raise


def _disk_error_of(error: BaseException, file: Path) -> OSError | None:
    """The error of the disk behind a library's error, with the file's name; None if there is none."""
    if isinstance(error, OSError):
        code, named = error.errno, bool(error.filename)
    else:
        told = OS_ERROR.search(str(error)) if isinstance(error, Exception) else None
        code, named = int(told[1]) if told else None, False
    if code == errno.ENOENT and not file.parent.is_dir():
        return OSError(errno.ESTALE, "its folder is gone (moved or deleted?)", str(file))
    return None if code is None or named else OSError(code, os.strerror(code), str(file))


def discard(file: Path) -> None:
    """Delete a file of ours, or a link or an empty folder of its name."""
    try:
        file.unlink(missing_ok=True)
    except OSError:  # for a folder, Linux and macOS raise different errors
        if not file.is_dir():
            raise
        file.rmdir()


@contextmanager
def atomic_output(file: Path) -> Iterator[Path]:
    """Write a user's output file whole or not at all, as `atomic`.

    Unfinished copies that killed processes left are deleted here: `doctor` does not search user folders.
    """
    start = f".{file.name[:100]}."
    with suppress(OSError):
        for other in file.parent.iterdir():
            name = other.name.removesuffix(PART)
            if name == other.name or not name.startswith(start):
                continue
            if _is_abandoned(name.removeprefix(start)):
                other.unlink(missing_ok=True)
    with atomic(file) as unfinished:
        yield unfinished


def check_output(file: Path) -> None:
    """Raise a UserError unless `--out` names a file that can be written: before the work, not after it."""
    if file.is_dir():
        raise UserError(f"--out {file} is a folder; name a file in it")
    if file.exists() and not file.is_file():
        raise UserError(f"--out {file} is a device or a pipe; name a file")
    if not file.parent.is_dir():
        raise UserError(f"--out {file}: there is no folder {file.parent}; make it first")
    probe = temporary_beside(file)
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}; choose another --out") from None


def _is_abandoned(own: str) -> bool:
    """Whether the process in a name of `temporary_beside` has ended; False if it is on another host."""
    host, _, rest = own.rpartition("-")[0].rpartition("-")
    if host != _host() or not rest.isdecimal():
        return False
    try:
        os.kill(int(rest), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def is_being_written(unfinished: Path) -> bool:
    """Whether the process that made an unfinished file is on this host and has not ended."""
    own = unfinished.name.removesuffix(PART).rpartition(".")[2]
    return own.startswith(f"{_host()}-") and not _is_abandoned(own)


def flush(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on disk.

    With SSMLBENCH_FSYNC=0 it does not wait: faster, but a power cut may lose the last files.
    """
    if os.environ.get("SSMLBENCH_FSYNC") == "0":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot flush a folder.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.ENOSYS):
            raise
    finally:
        os.close(descriptor)


def write_atomically(file: Path, content: str | bytes, durable: bool = True) -> None:
    """Write text (UTF-8) or bytes to a file, whole or not at all; durable as in `atomic`."""
    with atomic(file, durable) as unfinished:
        unfinished.write_bytes(_encoded(content))


def write_output(file: Path, content: str | bytes) -> None:
    """Write text (UTF-8) or bytes to a user's output file, as `atomic_output`."""
    with atomic_output(file) as unfinished:
        unfinished.write_bytes(_encoded(content))


def _encoded(content: str | bytes) -> bytes:
    return valid_text(content).encode() if isinstance(content, str) else content


def write_json(file: Path, values: Mapping[str, Any], durable: bool = True) -> None:
    """Write a JSON object with its checksum, whole or not at all; durable as in `atomic`."""
    write_atomically(file, json.dumps(with_checksum(values), indent=1), durable)


def read_json(file: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if the file is missing, damaged or holds something else."""
    try:
        values = json.loads(own_bytes(file))
    except (OSError, ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) and checksum_holds(values) else None


def read_own_json(file: Path) -> dict[str, Any]:
    """The JSON object in a file that this tool wrote, without its checksum.

    A FileNotFoundError if it is missing, DamagedFile if its content is not what was written.
    """
    try:
        values = json.loads(own_bytes(file))
    except FileNotFoundError:
        if file.is_symlink():
            raise DamagedFile(file, "it is a link to a file that is not there") from None
        raise
    except OSError as error:
        raise DamagedFile(file, f"it cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise DamagedFile(file, "not a whole JSON file") from None
    if not isinstance(values, dict):
        raise DamagedFile(file, "not a JSON object")
    if not checksum_holds(values):
        raise DamagedFile(file, "its content is not what was written")
    values.pop(FIELD, None)
    return values


def write_placed_json(file: Path, values: Mapping[str, Any], durable: bool = True) -> None:
    """Write a JSON object of the cache, as `write_json`, which says where it belongs."""
    write_json(file, {**values, PLACE: place_of(file)}, durable)


def read_placed_json(file: Path) -> dict[str, Any]:
    """The JSON object that `write_placed_json` wrote there, as `read_own_json`.

    DamagedFile also if it belongs elsewhere, or does not say where.
    """
    values = read_own_json(file)
    recorded = values.pop(PLACE, None)
    if recorded != place_of(file):
        raise DamagedFile(file, f"it belongs to {recorded}" if recorded else OLDER)
    return values


def publish_folder(unfinished: Path, folder: Path) -> None:
    """Replace a folder by another one whose files are finished, and wait until it is on disk."""
    for path in (*unfinished.rglob("*"), unfinished):
        flush(path)
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)
    flush(folder.parent)


def read_record(file: Path, record: type[R]) -> R | None:
    """A dataclass from a JSON file of any version; None as for `read_json`.

    Every field needs a default, which is used if the file lacks the field or has another type there; a
    field whose default is None takes any number. Unknown fields of the file are ignored.
    """
    values = read_json(file)
    return None if values is None else parse_record(values, record)


def parse_record(values: Mapping[str, Any], record: type[R]) -> R:
    """A dataclass from a JSON object, as `read_record` reads it."""
    defaults = record()
    known = {
        field.name: values[field.name]
        for field in dataclasses.fields(record)
        if field.name in values and _fits(values[field.name], getattr(defaults, field.name))
    }
    return record(**known)


def _fits(value: object, default: object) -> bool:
    if default is None or type(default) is float:
        return type(value) in (int, float)
    return type(value) is type(default)
