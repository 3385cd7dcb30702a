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
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar

from ssmlbench.core.checksums import (
    FIELD,
    OLDER,
    checksum_holds,
    place_of,
    with_checksum,
)
from ssmlbench.core.errors import DISK_ERRORS, DamagedFile, UserError, is_passing
from ssmlbench.core.paths import near
from ssmlbench.core.plain_files import plain_bytes
from ssmlbench.core.plain_text import valid_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    R = TypeVar("R", bound=DataclassInstance)


PLACE = "place"
"""The field of a JSON object of the cache that says where it belongs."""

PART = ".part"
"""The suffix of an unfinished file. Nothing reads such files; `ssmlbench doctor` deletes them."""

OF_LIBRARIES = ".tmp??????"
"""Names under which safetensors writes before it renames to the name it was given."""

UNFINISHED_NAMES = (f".*{PART}", OF_LIBRARIES)
"""Patterns of the names of unfinished files and folders."""

OS_ERROR = re.compile(r"\(os error (\d{1,4})\)")
"""How libraries written in Rust, such as safetensors, end the message about an error of the disk."""

REASONS = {os.strerror(code): code for code in DISK_ERRORS}
"""How Arrow ends it; torch adds the code in brackets."""

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
def atomic(file: Path, durable: bool = True, in_folder: bool = False) -> Iterator[Path]:
    """Write a file whole or not at all: write to the yielded path, which is renamed to `file` at the end.

    durable: wait until it is on disk; not needed for files that are useful only while a process lives.
    in_folder: the path is in a temporary folder, named after the file. For libraries that first write under
    a name of their own (OF_LIBRARIES), where the folder of `file` does not tell to what it belongs.
    Whichever library writes, the file's mode is what the umask wants, and an error of the disk is an
    OSError that names the file.
    """
    temporary = temporary_beside(file)
    unfinished = temporary / file.name if in_folder else temporary
    try:
        if in_folder:
            temporary.mkdir()
        unfinished.touch()
        mode = unfinished.stat().st_mode
        yield unfinished
        if unfinished.stat().st_mode != mode:  # safetensors: readable by this user only
            unfinished.chmod(mode)
        if durable:
            flush(unfinished)
        with suppress(OSError):
            file.rmdir()  # an empty folder of that name
        unfinished.replace(file)
        if in_folder:
            remove_folder(temporary)
        if durable:
            flush(file.parent)
    except BaseException as error:
        with suppress(OSError):
            remove(temporary)
        if (disk_error := _disk_error_of(error, file, temporary)) is not None:
            raise disk_error from error
        raise


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Raise an error of the disk as an OSError that names the file, whichever library reads it."""
    try:
        yield
    except Exception as error:
        if (disk_error := _disk_error_of(error, file, file)) is not None:
            raise disk_error from error
        raise


def _disk_error_of(error: BaseException, file: Path, opened: Path) -> OSError | None:
    """The error of the disk behind a library's error, with the file's name; None if there is none.

    opened: its name while it is written, or the folder it is written in, which tells a user nothing.
    """
    code = _code_of(error)
    if code == errno.ENOENT and not file.parent.is_dir():
        return OSError(errno.ESTALE, "its folder is gone (moved or deleted?)", str(file))
    if code is None or not _is_about(error, opened):
        return None
    return OSError(code, os.strerror(code), str(file))


def _is_about(error: BaseException, path: Path) -> bool:
    """Whether an error names a path, something in that folder, or nothing."""
    named = getattr(error, "filename", None)
    if not isinstance(named, str | bytes):
        return True
    file = Path(os.fsdecode(named))
    return path in (file, *file.parents)


def _code_of(error: BaseException) -> int | None:
    """The system's number of an error, which some libraries have only in their message."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    if isinstance(error, UserError) or not isinstance(error, Exception):
        return None
    text = str(error)
    if told := OS_ERROR.search(text):
        return int(told[1])
    endings = ((reason, f"{reason} ({code})") for reason, code in REASONS.items())
    return next((REASONS[ends[0]] for ends in endings if text.endswith(ends)), None)


def discard(file: Path) -> None:
    """Delete a file of ours, or a link or an empty folder of its name."""
    try:
        file.unlink(missing_ok=True)
    except OSError:  # for a folder, Linux and macOS raise different errors
        if not file.is_dir():
            raise
        try:
            file.rmdir()
        except OSError as error:  # what is in it is not ours
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(file)) from None


def remove(path: Path) -> None:
    """Delete a file, a link, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        discard(path)


def remove_folder(folder: Path) -> None:
    """Delete a folder with all that is in it, as far as that is possible."""
    with suppress(OSError):  # `ignore_errors` does not ignore those of fstat
        shutil.rmtree(folder, ignore_errors=True)


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


def check_output(file: Path, *endings: str) -> None:
    """Raise a UserError unless `--out` names a file that can be written: before the work, not after it.

    endings: of its name. A page that is written to `labels.csv` would replace a table.
    """
    if file.is_dir():
        raise UserError(f"--out {file} is a folder; name a file in it")
    if file.exists() and not file.is_file():
        raise UserError(f"--out {file} is a device or a pipe; name a file")
    if not file.parent.is_dir():
        raise UserError(f"--out {file}: there is no folder {file.parent}; make it first")
    if endings and file.suffix.lower() not in endings:
        raise UserError(f"--out {file}: expected a name that ends with {' or '.join(endings)}")
    probe = temporary_beside(file)
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}; choose another --out") from None


def check_folder(folder: Path, option: str, *, make: bool = False) -> None:
    """Raise a UserError unless the folder of an option can be written to: before the work.

    make: make it, if it is not there.
    """
    if not folder.resolve().name:
        raise UserError(f"{option} {folder}: name a folder below it")
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{near(there)} is not a folder")
        if make:
            folder.mkdir(parents=True, exist_ok=True)
            there = folder
        with TemporaryFile(dir=there, prefix=".writable-"):
            pass
    except OSError as error:
        problem = f"cannot write to {near(folder)}: {error.strerror}"
        raise UserError(f"{problem}; choose another folder with {option}") from None


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
    """The JSON object in a file; None if the file is missing, or not whole with its checksum."""
    values = _json_object(file)
    return values if values is not None and FIELD in values else None


def _json_object(file: Path) -> dict[str, Any] | None:
    """As `read_json`, but a file of a version before checksums may lack its own."""
    try:
        values = json.loads(plain_bytes(file))
    except (OSError, ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) and checksum_holds(values) else None


def read_own_json(file: Path) -> dict[str, Any]:
    """The JSON object in a file that this tool wrote, without its checksum.

    A FileNotFoundError if it is missing, DamagedFile if its content is not what was written.
    """
    try:
        values = json.loads(plain_bytes(file))
    except FileNotFoundError:
        if file.is_symlink():
            raise DamagedFile(file, "it is a link to a file that is not there") from None
        raise
    except OSError as error:
        if is_passing(error):
            raise
        raise DamagedFile(file, f"it cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise DamagedFile(file, "not a whole JSON file") from None
    if not isinstance(values, dict):
        raise DamagedFile(file, "not a JSON object")
    if FIELD not in values:  # a file of a version before checksums, or the field's name is damaged
        raise DamagedFile(file, "it has no checksum")
    if not checksum_holds(values):
        raise DamagedFile(file, "its content is not what was written")
    del values[FIELD]
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
    with suppress(FileNotFoundError):
        remove(folder)  # its errors say more than those of the next line
    unfinished.rename(folder)
    flush(folder.parent)


def read_record(file: Path, record: type[R]) -> R | None:
    """A dataclass from a JSON file of any version, which may be before checksums; else as `read_json`.

    Every field needs a default, which is used if the file lacks the field or has another type there; a
    field whose default is None takes any number. Unknown fields of the file are ignored.
    """
    values = _json_object(file)
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
