"""Errors that a user sees: mistakes in a command, failed runs, and plugins that do not load.

Any other exception that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations

import errno
from pathlib import Path


class UserError(Exception):
    """Something the user typed or wrote: one line that says what was wrong and what to type instead.

    The command line prints the line and exits with code 2.
    """


class DamagedFile(UserError, ValueError):
    """A file of ours whose content is not what was written, or that is missing."""

    def __init__(self, file: Path, reason: str, remedy: str = ""):
        """remedy: what to type, where nothing makes the file again by itself."""
        super().__init__(f"{file} is damaged: {reason}" + (f"; {remedy}" if remedy else ""))
        self.file = file
        self.reason = reason
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[DamagedFile], tuple[Path, str, str]]:
        return type(self), (self.file, self.reason, self.remedy)


class Unsupported(UserError):
    """A method that cannot do what was asked of it; `--method all` leaves it out."""


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
    """A plugin that does not keep to its contract, in the contract's words."""


class RunStopped(RunFailed):
    """A run whose training process ended or was ended early: its checkpoint, if any, is sound."""


DISK_ERRORS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.EFBIG,
    errno.ESTALE,
)
"""What a disk or a file system may answer: the user can mend it, and it is no bug of ours."""


def disk_error(error: OSError) -> str:
    """One line about a file that cannot be written or read."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    remedy = "free some space" if full else "make it readable and writable"
    where = error.filename or "the disk"
    return f"{where}: {error.strerror}; {remedy}, then give the same command again"


class DamageWarning(UserWarning):
    """A damaged file that was found and is made again."""


class PluginWarning(UserWarning):
    """An installed plugin that cannot be used. The other plugins still work."""
