"""Repairs of files while other processes use them: what one of them holds is left alone.

A repair looks twice, without the lock and again when it holds it: the file that is there then may be a new
one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from ssmlbench.core.errors import UserError, in_place_of_folder, in_the_way, plain_reason
from ssmlbench.core.files import OF_LIBRARIES, PART, discard, is_being_written, remove
from ssmlbench.core.keep_alive import is_fresh
from ssmlbench.core.locks import (
    LEASE,
    Busy,
    held_if_free,
    is_dead_lease,
    is_held,
    is_lease,
    lock_of_lease,
    remove_dead_leases,
)
from ssmlbench.core.spec import RunSpec

LEFT = "left by a process that has ended"
AWAY = "move it away"

Hold = Callable[[], AbstractContextManager[bool]]
"""Holds a lock in a block, as `held_if_free`."""


def _nothing_to_hold() -> AbstractContextManager[bool]:
    return nullcontext(True)


@dataclass(frozen=True)
class Finding:
    """A problem, and the remedy that was or would be applied."""

    path: Path
    problem: str
    remedy: str
    repaired: bool = True  # nothing is left for the user to do
    spec: RunSpec | None = None  # of a run that has to be repeated


@dataclass
class Repairs:
    """The problems that were found, with what was done; in a dry run nothing is changed."""

    dry_run: bool = False
    findings: list[Finding] = field(default_factory=list)
    files: int = 0
    bytes: int = 0

    def count(self, files: Iterable[Path]) -> None:
        """Count files that were read."""
        for file in files:
            with suppress(FileNotFoundError):  # deleted meanwhile
                if file.is_file():
                    self.bytes += file.stat().st_size
                    self.files += 1

    def leftovers(self, root: Path) -> None:
        """Delete unfinished files and folders, and leases, of processes that have ended."""
        for path in named_below(root, f".*{PART}"):
            if _is_abandoned(path):
                finding, still = Finding(path, LEFT, "deleted"), partial(_is_abandoned, path)
                self.repair([finding], partial(remove, path), still)
        for path in named_below(root, OF_LIBRARIES):
            # Its name says nothing about its process; one that writes changes the time.
            self.delete(path, LEFT, "deleted", lambda file: not is_fresh(file))
        leases = [path for path in named_below(root, f"*{LEASE}*") if is_lease(path)]
        self.folders(leases)
        for path in leases:
            if path.is_file() and is_dead_lease(path):
                clear = partial(remove_dead_leases, lock_of_lease(path))
                self.repair([Finding(path, LEFT, "deleted")], clear)

    def locks(self, files: Iterable[Path]) -> None:
        """Delete the files of locks that nobody holds."""
        for file in files:
            if file.is_file() and not is_held(file):
                finding = Finding(file, "a lock that nobody holds", "deleted")
                hold = partial(held_if_free, file)  # which deletes the file at the end
                self.repair([finding], lambda: None, file.is_file, hold)

    def folders(self, files: Iterable[Path]) -> None:
        """List the folders that are in the place of files; what is in them is not ours to delete."""
        listed = {finding.path for finding in self.findings}
        for file in files:
            if file not in listed and (what := in_the_way(file)) and not _can_go(file):
                self.add(file, what, AWAY, repaired=False)

    def files_in_place(self, folders: Iterable[Path]) -> None:
        """List what is in the place of folders of ours: files, and links that lead to no folder."""
        for folder in folders:
            blocking = in_place_of_folder(folder)
            if blocking is not None and blocking[0] == folder:
                self.add(*blocking, AWAY, repaired=False)

    def delete(
        self,
        file: Path,
        problem: str,
        remedy: str,
        unneeded: Callable[[Path], bool],
        hold: Hold = _nothing_to_hold,
    ) -> None:
        """Delete a file if it is there and `unneeded`; hold: as for `repair`."""

        def can_go() -> bool:
            return file.is_file() and unneeded(file)

        if can_go():
            self.repair([Finding(file, problem, remedy)], partial(discard, file), can_go, hold)

    def repair(
        self,
        findings: Sequence[Finding],
        repair: Callable[[], object],
        still: Callable[[], bool] = lambda: True,
        hold: Hold = _nothing_to_hold,
    ) -> None:
        """Repair a problem, unless this is a dry run. If that fails, it is left to the user.

        hold: takes the lock of what is repaired. If another process has it, nothing is done.
        still: whether the problem is still there, once the lock is taken.
        """
        if self.dry_run:
            for finding in findings:
                self.add(finding.path, finding.problem, f"would be {finding.remedy}")
            return
        if not findings:
            return
        try:
            with hold() as free:
                if not (free and still()):
                    return
                repair()
        except Busy:
            return
        except (UserError, OSError) as error:
            for finding in findings:
                what, remedy = finding.problem, plain_reason(error)
                if in_its_place := in_the_way(finding.path):
                    what, remedy = in_its_place, AWAY
                self.add(finding.path, what, remedy, repaired=False)
        else:
            self.findings.extend(findings)

    def add(
        self,
        path: Path,
        problem: str,
        remedy: str,
        repaired: bool = True,
        spec: RunSpec | None = None,
    ) -> None:
        """Add a finding; its fields."""
        self.findings.append(Finding(path, problem, remedy, repaired, spec))


def _can_go(folder: Path) -> bool:
    """Whether a folder in the place of a file is deleted with it: a link, or an empty folder."""
    try:
        return folder.is_symlink() or not any(folder.iterdir())
    except OSError:
        return False


def named_below(root: Path, pattern: str) -> list[Path]:
    """The files and folders below a root whose names match, sorted; folders may vanish meanwhile."""
    return sorted(
        Path(folder, name)
        for folder, folders, files in os.walk(root)
        for name in (*folders, *files)
        if fnmatch(name, pattern)
    )


def _is_abandoned(unfinished: Path) -> bool:
    there = os.path.lexists(unfinished)
    return there and not is_fresh(unfinished) and not is_being_written(unfinished)
