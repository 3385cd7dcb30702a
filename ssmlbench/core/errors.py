"""Errors that a user sees: mistakes in a command, failed runs, and plugins that do not load.

Any other exception that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations

import errno
from pathlib import Path


class UserError(Exception):
    """A mistake in a command or in a user's file: one line, with the mistake and the remedy.

    The command line prints the line and exits with code 2.
    """


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


DISK_ERRORS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.EFBIG,
    errno.ESTALE,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.ELOOP,
)
"""Errors of a disk or file system: the user can fix them, they are no bugs of ours."""


def plain_reason(error: Exception) -> str:
    """Why a file cannot be read, without the number of the error and the path, which messages have."""
    return getattr(error, "strerror", None) or str(error)


def disk_error(error: OSError) -> str:
    """One line about a file that cannot be written or read."""
    where = str(error.filename or "the disk")
    again = "give the same command again"
    if error.errno == errno.ENAMETOOLONG:
        return f"{where[:60]}… is too long for the name of a file; write a shorter one"
    if error.errno == errno.ENOTDIR:
        return f"{where}: a part of this path is a file, and no folder; choose another path"
    if error.errno == errno.ELOOP:
        return f"{where}: its links lead in a circle; choose another path"
    if error.errno == errno.ESTALE:
        return f"{where}: {error.strerror}; {again}"
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    remedy = "free some space" if full else "make it readable and writable"
    return f"{where}: {error.strerror}; {remedy}, then {again}"


class DamageWarning(UserWarning):
    """A damaged file that was found and is replaced."""


class LeftOutWarning(UserWarning):
    """Methods of `--method all` that do not support the request and get no runs."""


class PluginWarning(UserWarning):
    """An installed plugin that cannot be used. The other plugins still work."""
