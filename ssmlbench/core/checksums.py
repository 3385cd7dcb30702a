"""Checksums of the files this tool writes, and their verification when a file is opened.

Three places hold one: a JSON file's `checksum` field, the header of a safetensors file, and a trailer
behind any other binary file. A folder's JSON file may also list the digests of files beside it. Files of
the cache also record the place where they belong: two files that were swapped have valid contents.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypedDict

from ssmlbench.core.errors import DamagedFile, is_passing, with_file_name
from ssmlbench.core.plain_files import HOLLOW, is_hollow

FIELD = "checksum"
"""The field of a JSON object, or of a safetensors file's metadata, that holds its checksum."""

UNSTAMPED = "0" * 64
"""What the metadata of a safetensors file holds in place of its checksum until `stamp` is called."""

TRAILER = b"\nplaced="
OLDER_TRAILER = b"\nsha256="
"""The mark before a file's checksum; the older one: of a checksum that does not cover the place."""
TRAILER_BYTES = len(TRAILER) + 64

OLDER = "an older version wrote it, which did not record where it belongs"

LARGEST_HEADER = 100_000_000
"""The largest header of a safetensors file, by its specification."""


CLOCK_TICK = 20_000_000
"""Nanoseconds within which two changes of a file may have the same time."""


class FileFacts(TypedDict):
    """Size and digest of a file, as the JSON file of its folder records them."""

    bytes: int
    sha256: str


_verified: set[tuple[object, ...]] = set()
"""The files that this process has verified, each as it was on disk then."""


def verified_files(places: Iterable[Path]) -> frozenset[tuple[object, ...]]:
    """Those of these files, and of the files below these folders, that this process has verified.

    For another process to take over, which learns their checksums: name only what it may read.
    """
    wanted = frozenset(str(place.absolute()) for place in places)
    below = tuple(f"{place}{os.sep}" for place in wanted)
    names = ((key, str(key[0])) for key in _verified)
    return frozenset(key for key, name in names if name in wanted or name.startswith(below))


def take_over(verified: frozenset[tuple[object, ...]]) -> None:
    """Do not read again what another process has verified, as long as it is unchanged."""
    _verified.update(verified)


def digest_of(file: Path) -> str:
    """The SHA-256 of a file, in hex."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def file_facts(folder: Path, files: Iterable[Path]) -> dict[str, FileFacts]:
    """Size and SHA-256 of files, by their path below a folder: what the folder's JSON file records."""
    return {
        file.relative_to(folder).as_posix(): {
            "bytes": stat_of(file).st_size,
            "sha256": digest_of(file),
        }
        for file in sorted(files)
    }


def verify_file(file: Path, facts: FileFacts, record: Path) -> None:
    """Raise DamagedFile unless the file is as recorded; read once per process while it is unchanged.

    record: the JSON file with the facts. A file that fails gets a time after the record's, so that
    `verify_beside` sees it. The present time may lie before the record's: a clock may be set back.
    """
    _check_facts(file.name, facts, record)
    try:
        _check_size(file, _stat(file), facts)  # first: it takes no reading
        _once(file, facts["sha256"], lambda: _compare(file, digest_of(file), facts["sha256"]))
    except DamagedFile:
        with suppress(OSError):
            later = max(time.time(), record.stat().st_mtime + 2)  # some store even seconds only
            os.utime(file, (later, later))
        raise


def verify_beside(
    record: Path, files: Mapping[str, FileFacts], needed: Container[str] | None = None
) -> None:
    """Raise DamagedFile unless the files beside a JSON file are there, as it records them.

    Cheap: only a file that was changed after the record was written is read.
    needed: the files that may not be missing; all if it is None.
    """
    written = record.stat().st_mtime_ns
    for name, facts in files.items():
        file = record.parent / name
        if needed is not None and name not in needed and not os.path.lexists(file):
            continue
        _check_facts(name, facts, record)
        status = _stat(file)
        _check_size(file, status, facts)
        if status.st_mtime_ns > written:
            verify_file(file, facts, record)


def _check_size(file: Path, status: os.stat_result, facts: FileFacts) -> None:
    if status.st_size != facts["bytes"]:
        raise DamagedFile(file, f"it has {status.st_size:,} bytes, not {facts['bytes']:,}")


def _check_facts(name: str, facts: object, record: Path) -> None:
    """Raise DamagedFile unless a record says of a file what `file_facts` says."""
    given = facts if isinstance(facts, Mapping) else {}
    if not (isinstance(given.get("bytes"), int) and isinstance(given.get("sha256"), str)):
        raise DamagedFile(record, f"it does not say what {name!r} holds")


# ------------------------------------------------------------------------------------------ places


def place_of(file: Path) -> str:
    """Where a file of the cache belongs: its folder's name, which holds a key, and its own."""
    return f"{file.parent.name}/{file.name}"


# ------------------------------------------------------------------------------------ JSON objects


def checksum_of(values: Mapping[str, Any]) -> str:
    """The checksum of a JSON object's values, whatever the order of its keys and its white space."""
    rest = {key: value for key, value in values.items() if key != FIELD}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def with_checksum(values: Mapping[str, Any]) -> dict[str, Any]:
    """The object as JSON holds it, with its checksum as the last field."""
    rest = json.loads(json.dumps({key: value for key, value in values.items() if key != FIELD}))
    return {**rest, FIELD: checksum_of(rest)}


def checksum_holds(values: Mapping[str, Any]) -> bool:
    """Whether the object has no checksum (older files have none), or the right one."""
    return FIELD not in values or values[FIELD] == checksum_of(values)


# ----------------------------------------------------------------------------- safetensors headers


def stamp(file: Path, place: str = "") -> None:
    """Put the checksum into the header of a safetensors file that was written with `UNSTAMPED`.

    It is the SHA-256 of the whole file as it was before, with zeros where the checksum goes, and of the
    place of a file that is bound to one.
    """
    with file.open("r+b") as opened:
        hashed = hashlib.file_digest(opened, "sha256")
        hashed.update(place.encode())
        digest = hashed.hexdigest()
        start = _start_of_checksum(opened)
        if start is None:
            raise ValueError(f"{file} has no {FIELD} in its metadata")
        opened.seek(start)
        opened.write(digest.encode())


def verify_stamp(file: Path) -> None:
    """Raise DamagedFile unless the file matches the checksum in its header."""
    _once(file, "stamp", lambda: _compare_stamp(file, ""))


def verify_placed_stamp(file: Path) -> None:
    """As `verify_stamp`, for a file whose checksum covers its place."""
    _once(file, "placed stamp", lambda: _compare_stamp(file, place_of(file)))


def _compare_stamp(file: Path, place: str) -> None:
    with file.open("rb") as opened:
        start = _start_of_checksum(opened)
        if start is None:
            raise DamagedFile(file, "its header has no checksum")
        opened.seek(start)
        recorded = opened.read(64)
        opened.seek(0)
        digest = hashlib.sha256(opened.read(start))
        digest.update(UNSTAMPED.encode())
        opened.seek(64, os.SEEK_CUR)
        while block := opened.read(1 << 20):
            digest.update(block)
    if place and digest.hexdigest().encode() == recorded:
        raise DamagedFile(file, OLDER)
    digest.update(place.encode())
    _compare(file, digest.hexdigest().encode(), recorded)


def _start_of_checksum(opened: BinaryIO) -> int | None:
    """Where in a safetensors file the digits of its checksum are; None if it has none."""
    opened.seek(0)
    length = int.from_bytes(opened.read(8), "little")
    if length > LARGEST_HEADER:
        return None
    key = f'"{FIELD}":"'.encode()
    offset = opened.read(length).find(key)
    return None if offset < 0 else 8 + offset + len(key)


# ---------------------------------------------------------------------------------------- trailers


def append_trailer(file: Path, place: str) -> None:
    """Append the SHA-256 of the file and its place. Readers of .npy files ignore what follows the array."""
    with file.open("r+b") as opened:
        digest = hashlib.file_digest(opened, "sha256")
        digest.update(place.encode())
        opened.seek(0, os.SEEK_END)
        opened.write(TRAILER + digest.hexdigest().encode())


def remember_trailer(file: Path) -> None:
    """Count a file as verified whose trailer this process has just written: it was read for that."""
    _remember(file, "trailer", _stat(file))


def verify_trailer(file: Path) -> None:
    """Raise DamagedFile unless the file ends with the checksum of what stands before it and its place."""
    _once(file, "trailer", lambda: _compare_trailer(file))


def _compare_trailer(file: Path) -> None:
    with file.open("rb") as opened:
        left = max(0, os.fstat(opened.fileno()).st_size - TRAILER_BYTES)
        digest = hashlib.sha256()
        while left and (block := opened.read(min(left, 1 << 20))):
            digest.update(block)
            left -= len(block)
        recorded = opened.read()
    if recorded == OLDER_TRAILER + digest.hexdigest().encode():
        raise DamagedFile(file, OLDER)
    digest.update(place_of(file).encode())
    _compare(file, TRAILER + digest.hexdigest().encode(), recorded)


def failures(verify: Callable[[Path], object], file: Path) -> list[DamagedFile]:
    """The DamagedFile that `verify` raises for a file, in a list; the list is empty if it raises none."""
    try:
        verify(file)
    except DamagedFile as damaged:
        return [damaged]
    return []


def _compare(file: Path, found: object, expected: object) -> None:
    if found != expected:
        raise DamagedFile(file, "its content is not what was written")


def _once(file: Path, check: str, verify: Callable[[], None]) -> None:
    """Call `verify`, unless this process did so and the file is unchanged. check: which check it is."""
    status = _stat(file)
    if _key(file, check, status) in _verified:
        return
    try:
        verify()
    except OSError as error:
        raise _unreadable(file, error) from None
    _remember(file, check, status)


def _remember(file: Path, check: str, status: os.stat_result) -> None:
    """Do not read the file again. Not if it is so young that a change could leave its time the same."""
    if time.time_ns() - status.st_mtime_ns > CLOCK_TICK:
        _verified.add(_key(file, check, status))


def _key(file: Path, check: str, status: os.stat_result) -> tuple[object, ...]:
    return file.absolute(), check, status.st_ino, status.st_size, status.st_mtime_ns


def stat_of(file: Path) -> os.stat_result:
    """The `stat` of a file; FileNotFoundError if there is none, DamagedFile if it is no file."""
    try:
        status = file.stat()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unreadable(file, error) from None
    except ValueError:  # a null byte or half a character in a name that a record lists
        raise DamagedFile(file, "no file has such a name") from None
    if not stat.S_ISREG(status.st_mode):  # a pipe or a device: to read it may take for ever
        raise DamagedFile(file, "it is not a file")
    if is_hollow(status):  # to read a petabyte of zeros takes for ever too
        raise DamagedFile(file, HOLLOW)
    return status


def _stat(file: Path) -> os.stat_result:
    try:
        return stat_of(file)
    except FileNotFoundError as error:
        raise _unreadable(file, error) from None


def _unreadable(file: Path, error: OSError) -> Exception:
    """The error of a file that cannot be read: a folder in its place, a loop of links, a bad sector."""
    if isinstance(error, FileNotFoundError):
        return DamagedFile(file, "it is missing")
    if is_passing(error):
        return with_file_name(error, file)
    return DamagedFile(file, f"it cannot be read ({error.strerror})")
