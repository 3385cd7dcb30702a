"""Files written whole or not at all, and on disk for good when a rename has published them.

Every file of a run or of a cache is published here: filled under another name, flushed to the disk,
renamed, and the folder flushed too, so that a power cut leaves the old file or the new one.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
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
    place_of,
    with_checksum,
)
from ssmlbench.core.errors import DamagedFile

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    R = TypeVar("R", bound=DataclassInstance)


PLACE = "place"
"""The field of a JSON object of the cache that says where it belongs."""

PART = ".part"
"""How the name of an unfinished file ends. Nothing reads one; `ssmlbench doctor` sweeps them."""


def temporary_beside(file: Path) -> Path:
    """A name in the same folder, so that the rename that ends a write is atomic.

    No other thread, process or host has the same one.
    """
    own = f"{_host()}-{os.getpid()}-{secrets.token_hex(4)}"
    return file.with_name(f".{file.name[:100]}.{own}{PART}")


def _host() -> str:
    return "".join(c if c.isalnum() or c == "-" else "_" for c in socket.gethostname())[:40]


@contextmanager
def atomic(file: Path, durable: bool = True) -> Iterator[Path]:
    """Write a file whole or not at all: fill the path given, which is renamed to `file` at the end.

    durable: wait until the disk has it. Files that are only of use while a process lives need not be.
    """
    unfinished = temporary_beside(file)
    try:
        yield unfinished
        if durable:
            flush(unfinished)
        with suppress(OSError):
            file.rmdir()  # an empty folder of that name is no file of ours
        unfinished.replace(file)
        if durable:
            flush(file.parent)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def discard(file: Path) -> None:
    """Delete a file of ours, or what stands in its place: a link, or an empty folder."""
    try:
        file.unlink(missing_ok=True)
    except OSError:  # Linux and macOS have different words for a folder
        if not file.is_dir():
            raise
        file.rmdir()


@contextmanager
def atomic_output(file: Path) -> Iterator[Path]:
    """Write a file of the user's whole or not at all, as `atomic`.

    What killed processes left of the same file is deleted: `doctor` looks into no folder of the user's.
    """
    start = f".{file.name[:100]}."
    with suppress(OSError):
        for other in file.parent.iterdir():
            name = other.name.removesuffix(PART)
            if name != other.name and name.startswith(start) and _is_left(name.removeprefix(start)):
                other.unlink(missing_ok=True)
    with atomic(file) as unfinished:
        yield unfinished


def _is_left(own: str) -> bool:
    """Whether the process that `temporary_beside` names is gone; False if it is on another host."""
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


def flush(path: Path) -> None:
    """Wait until the disk has a file, or a folder's list of names.

    With SSMLBENCH_FSYNC=0 it does not wait: quicker, but a power cut may lose what was written last.
    """
    if os.environ.get("SSMLBENCH_FSYNC") == "0":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot flush a folder; the rename is as safe there as they are.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.ENOSYS):
            raise
    finally:
        os.close(descriptor)


def write_atomically(file: Path, content: str | bytes, durable: bool = True) -> None:
    """Write text (UTF-8) or bytes to a file, whole or not at all; durable as in `atomic`."""
    with atomic(file, durable) as unfinished:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)


def write_output(file: Path, content: str | bytes) -> None:
    """Write text (UTF-8) or bytes to a file of the user's, as `atomic_output`."""
    with atomic_output(file) as unfinished:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(file: Path, values: Mapping[str, Any], durable: bool = True) -> None:
    """Write a JSON object with its checksum, whole or not at all; durable as in `atomic`."""
    write_atomically(file, json.dumps(with_checksum(values), indent=1), durable)


def read_json(file: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if the file is missing, damaged or holds something else."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) and checksum_holds(values) else None


def read_own_json(file: Path) -> dict[str, Any]:
    """The JSON object in a file that this tool wrote, without its checksum.

    A FileNotFoundError if it is missing, DamagedFile if its content is not what was written.
    """
    try:
        values = json.loads(file.read_bytes())
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
    """Put a folder of finished files in the place of another one, on disk for good."""
    for path in (*unfinished.rglob("*"), unfinished):
        flush(path)
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)
    flush(folder.parent)


def read_record(file: Path, record: type[R]) -> R | None:
    """A dataclass from a JSON file, whatever version wrote it; None as for `read_json`.

    Every field needs a default. It is kept where the file lacks the field or has another type there;
    a default of None takes any number. What the dataclass does not know is ignored.
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
