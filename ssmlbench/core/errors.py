"""Errors that a user sees: mistakes in a command, failed runs, and plugins that do not load.

Any other exception that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from ssmlbench.core.plain_text import one_line, shorten

NO_FAULT = (KeyboardInterrupt, GeneratorExit)
"""What is not a fault of the plugin that raises it. Anything else is, also if it is not an Exception."""


class UserError(Exception):
    """A mistake in a command or in a user's file: one line, with the mistake and the remedy.

    The command line prints the line and exits with code 2. A name or a library's message in the text
    may have line ends: they are shown as spaces.
    """

    def __str__(self) -> str:
        return one_line(shorten(super().__str__()))


class ListedMistakes(UserError):
    """A mistake whose line has others below it: bad rows, or the layout of a folder."""

    def __init__(self, line: str, *below: str):
        super().__init__(line, *below)

    def __str__(self) -> str:
        line, *below = self.args
        return "\n".join([one_line(line), *(text.replace("\n", " ") for text in below)])


class DamagedFile(UserError, ValueError):
    """A file of ours whose content is not what was written, or that is missing."""

    def __init__(self, file: Path, reason: str, remedy: str = ""):
        """remedy: what to type; empty if the tool makes the file again by itself."""
        super().__init__(f"{file} is damaged: {reason}" + (f"; {remedy}" if remedy else ""))
        self.file = file
        self.reason = reason
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[DamagedFile], tuple[Path, str, str]]:
        return type(self), (self.file, self.reason, self.remedy)


class Unsupported(UserError):
    """A method does not support the request; `--method all` leaves it out."""


class RunFailed(Exception):
    """A run that started and could not finish (a loss that is not finite, a plugin that raised)."""

    def __init__(self, message: str, member: str = "", literal: str = ""):
        """member: the plugin's function to look at; literal: a text in it, e.g. a term's name."""
        super().__init__(message)
        self.member = member
        self.literal = literal


class Diverged(RunFailed):
    """A loss or weights that are not finite: the same spec would fail again."""


class ContractError(RunFailed):
    """A plugin does not keep to its contract."""


class RunStopped(RunFailed):
    """The training process of a run ended early or was stopped: its checkpoint, if any, is valid."""


PASSING_ERRORS = (
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EINTR,
    errno.EBUSY,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.ENOTCONN,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
)
"""Errors of a process or of a network, which say nothing about the file."""

DISK_ERRORS = (
    *PASSING_ERRORS,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.EFBIG,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.EMLINK,
    errno.EXDEV,
    errno.ENODEV,
    errno.ENXIO,
    errno.ENOLCK,
)
"""Errors of a disk, file system or machine: the user can fix them; they are not bugs."""

CHANGED = (errno.ENOENT, errno.EEXIST, errno.EISDIR, errno.ENOTEMPTY)
"""Errors of a named file that another process has deleted, made or replaced."""


BLOCKED = (errno.EEXIST, errno.ENOTDIR, errno.ELOOP)
"""Errors of a folder that cannot be made or entered, as something else is in its place."""


def is_passing(error: Exception) -> bool:
    """Whether an error says nothing about the file that was read: it must not count as damaged or bad."""
    return isinstance(error, OSError) and error.errno in PASSING_ERRORS


def plain_reason(error: Exception) -> str:
    """Why a file cannot be read, without the number of the error and the path, which messages have."""
    return getattr(error, "strerror", None) or str(error)


def with_file_name(error: OSError, file: Path) -> OSError:
    """The error, with a file's name if it has none: those of reading, locking and closing have none."""
    error.filename = error.filename or str(file)
    return error


AGAIN = "give the same command again"
FREE_SPACE, MORE_FILES = "free some space", "raise the limit of open files (`ulimit -n`)"
REMEDIES = {
    **dict.fromkeys(PASSING_ERRORS, ""),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), FREE_SPACE),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), MORE_FILES),
    errno.ENOMEM: "free some memory",
}
"""What to do before the same command is given again."""


def in_the_way(path: Path) -> str:
    """What is in the place of a file of ours; empty if nothing is."""
    return "a folder with something in it is in the place of this file" if path.is_dir() else ""


def in_place_of_folder(folder: Path) -> tuple[Path, str] | None:
    """What is in the place of a folder of ours, or of one above it: its path, and the problem.

    A link to nothing is not deleted, as one in the place of a file is: the disk that it leads to may
    come back.
    """
    with suppress(OSError):  # a folder that may not be searched
        if folder.is_dir():  # then so are those above it: `doctor` asks for every run
            return None
        for part in (*reversed(folder.parents), folder):
            if part.is_dir():
                continue
            if part.is_symlink():
                return part, "a link that leads to no folder is in the place of this folder"
            if part.exists():
                return part, "a file is in the place of this folder"
            break
    return None


def disk_error(error: OSError) -> str | None:
    """One line about a file that cannot be written or read; None if the error may be a bug of ours."""
    if error.errno in BLOCKED and error.filename:
        file = Path(os.fsdecode(error.filename))
        folder = file if error.errno == errno.EEXIST else file.parent
        if blocking := in_place_of_folder(folder):
            return f"{blocking[0]}: {blocking[1]}; move it away, or choose another path"
    if error.errno in CHANGED and error.filename:
        if error.errno == errno.EISDIR and (what := in_the_way(Path(error.filename))):
            return f"{error.filename}: {what}; move it away, then {AGAIN}"
        return f"{error.filename}: {error.strerror}; did another process change it? {AGAIN}"
    if error.errno not in DISK_ERRORS:
        return None
    where = str(error.filename or "the disk")
    if error.errno == errno.ENAMETOOLONG:
        return f"{where[:60]}… is too long for the name of a file; write a shorter one"
    if error.errno == errno.ENOTDIR:
        return f"{where}: a part of this path is a file, and no folder; choose another path"
    if error.errno == errno.ELOOP:
        return f"{where}: its links lead in a circle; choose another path"
    remedy = REMEDIES.get(error.errno, "make it readable and writable")
    return f"{where}: {error.strerror}; " + (f"{remedy}, then {AGAIN}" if remedy else AGAIN)


class DamageWarning(UserWarning):
    """A damaged file that was found and is replaced."""


class LeftOutWarning(UserWarning):
    """Methods of `--method all` that do not support the request and get no runs."""


class PluginWarning(UserWarning):
    """An installed plugin that cannot be used. The other plugins still work."""
