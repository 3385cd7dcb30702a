"""Closes the training process to the labels on disk: which places are sealed, and a tripwire in Python.

The tripwire reports every attempt that goes through Python. On Linux, kernel_lock.py has the kernel
refuse the same places. Neither is needed for the labels to be absent from memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ssmlbench.core.errors import UserError
from ssmlbench.core.files import PART
from ssmlbench.core.path_meanings import can_list_open_files, path_meanings
from ssmlbench.core.paths import cache_root, usual_cache_root
from ssmlbench.core.protected_files import (
    CHANGES,
    NEW_INTERPRETER,
    changed_path,
    database_file,
)
from ssmlbench.core.sealed_files import (
    CARD,
    HOLDS_LABELS,
    HOLDS_RESULTS,
    INDEX,
    LABELS,
    PROTECTED,
    RUN_FILES,
    SEALED,
    SPEC,
    TASKS,
    in_tasks,
)
from ssmlbench.runs.folder import logs_of, whole_results
from ssmlbench.runs.known_results import known_results
from ssmlbench.runs.seal_reports import STARTED

PROGRAMS = (
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"),
    *("os.spawn", "pty.spawn"),
)
PATHS = {
    "open": 1,
    "os.rename": 2,
    "os.link": 2,
    "os.symlink": 1,
    "os.remove": 1,
    "os.truncate": 1,
    "sqlite3.connect": 1,
}
"""Audit events, and how many of their first arguments are paths that are looked at."""
LISTINGS = frozenset(("os.listdir", "os.scandir"))
"""Audit events that list a folder."""
RUN_DEPTH = 4
"""The folders between a results folder and a file of a run."""
MEMORY = frozenset(("mem", "root", "cwd", "fd", "map_files"))
WRITTEN = ("features", "decoded")
"""The folders of the cache that a training process writes to."""
MOST_ENTRIES, MOST_LINKS = 10_000, 1_000
"""The most files of a raw folder that are searched for links, and the most links that are sealed."""
IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp")
"""Links to such files are sealed in the raw folder itself, not below it: they may be many."""


@dataclass(frozen=True)
class SealedPlaces:
    """What a training process may not read, as real paths of this machine."""

    tasks: str  # the prepared data sets, of which the labels and cards are sealed
    results: str  # the results folder: what runs scored is sealed
    raw: str  # the folder of files that the data set was made of, "" if there is none
    copies: tuple[str, ...]  # where labels and results lie a second time
    inodes: frozenset[tuple[int, int]]  # of the label files of this data set, whatever their names
    own: str  # the run's folder, in which training may move files
    other_results: tuple[str, ...] = ()  # folders of runs on this data set in other results folders

    @classmethod
    def of(
        cls,
        source: str,
        results: Path,
        task_folder: Path,
        own: Path | None = None,
        dataset: str = "",
    ) -> SealedPlaces:
        """The places as they are on disk now; source: of the data set, as its card has it."""
        raw_folder = source if Path(source).is_absolute() and Path(source).exists() else ""
        labels = [*(task_folder / LABELS).glob("*"), task_folder / CARD]
        return cls(
            tasks=_real(cache_root() / TASKS),
            results=_real(whole_results(results)),
            raw=_real(raw_folder) if raw_folder else "",
            copies=tuple(
                map(_real, (*_copies(source), *_linked_from(raw_folder), logs_of(results)))
            ),
            inodes=frozenset(stamp for file in labels if (stamp := _inode(file))),
            own=_real(own) if own else "",
            other_results=_elsewhere(known_results(dataset) if dataset else [], results),
        )

    def roots(self) -> tuple[str, ...]:
        """The folders and files that hold what is sealed."""
        copies = *self.copies, *self.other_results
        return (self.tasks, self.results, *filter(None, [self.raw]), *copies)

    def holds(self, folder: Path) -> bool:
        """Whether a folder that Python imports from is one of data or results: only its code is read.

        A folder below the raw one may be of a user's code, unless it is the working folder, which Python
        imports from whatever is in it.
        """
        place = _real(folder)
        if self.raw and place.startswith(f"{self.raw}{os.sep}"):
            return place == _real(os.curdir)
        return any(f"{place}{os.sep}".startswith(f"{root}{os.sep}") for root in self.roots())


def _elsewhere(known: Iterable[Path], results: Path) -> tuple[str, ...]:
    """The folders of runs that are not in the results folder."""
    inside = f"{_real(whole_results(results))}{os.sep}"
    return tuple(place for place in map(_real, known) if not place.startswith(inside))


def code_in(folder: Path) -> list[Path]:
    """The modules in a folder that Python imports from, and those of its packages."""
    packages = [file.parent for file in folder.glob("*/__init__.py")]
    found = [folder.glob(name) for name in ("*.py", "*.so")]
    found += [package.rglob(name) for package in packages for name in ("*.py", "*.so")]
    return [file for files in found for file in islice(files, MOST_ENTRIES)]


def _copies(source: str) -> list[Path]:
    """The index of results, and what Hugging Face's library keeps of a data set from the hub."""
    from huggingface_hub import constants

    places = [cache_root() / "hub"]
    sealed_later = [cache_root() / INDEX]  # another command may make it while this run trains
    with suppress(UserError):  # a user without a home
        if _real(usual_cache_root()) != _real(cache_root()):
            sealed_later += [usual_cache_root() / TASKS, usual_cache_root() / INDEX]
    hub, folder = Path(constants.HF_HUB_CACHE), Path(source)
    if folder.is_relative_to(hub):  # its files are links to the repository's `blobs`
        places.append(hub / folder.relative_to(hub).parts[0])
    elif source and not folder.is_absolute():
        repository = source.partition("@")[0].replace("/", "--")
        kept = os.environ.get("HF_DATASETS_CACHE") or Path(constants.HF_HOME) / "datasets"
        places += [hub / f"datasets--{repository}", Path(kept)]
    return [*sealed_later, *(path for path in places if path.exists())]


def _linked_from(raw_folder: str) -> list[Path]:
    """The links in the raw folder and below it, whose targets are sealed too."""
    links: list[Path] = []
    folders, seen = [raw_folder] if raw_folder else [], 0
    for folder in folders:  # it grows
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in islice(entries, MOST_ENTRIES - seen):
                seen += 1
                an_image = folder != raw_folder and entry.name.lower().endswith(IMAGES)
                if entry.is_symlink() and not an_image:
                    links.append(Path(entry.path))
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return links[:MOST_LINKS]


def _inode(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def set_tripwire(
    places: SealedPlaces,
    needed: Iterable[Path],
    report: Callable[[str], None],
    note: Callable[[str], None],
    plugins: Iterable[str] = (),
) -> None:
    """From now on, refuse and report what opens labels in this process. It cannot be taken back.

    So are changes of the code that judges, of other runs and of what later commands read.

    needed: files and folders that stay readable although they may lie in the raw folder.
    plugins: the plugin files of the command, of which this process imports only some.
    """
    # What the hook uses is bound here and below: what a plugin puts into modules is not used. Nor are
    # built-in functions, which a plugin can replace.
    needed = list(needed)
    is_sealed, paths, programs = _sealed(places, needed), dict(PATHS), frozenset(PROGRAMS)
    lists_labels, listings = _lists_labels(places, needed), LISTINGS
    roots, meanings, separator = places.roots(), path_meanings(), os.sep
    results, own = f"{places.results}{separator}", f"{places.own}{separator}"
    changed = changed_path(plugins, places.results, places.own)
    changes, sealed, protected = frozenset(("open", *CHANGES)), SEALED, PROTECTED
    new_interpreter, started = NEW_INTERPRETER, STARTED

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in paths:
            for path in arguments[: paths[event]]:
                if is_sealed(database_file(path) if event == "sqlite3.connect" else path):
                    refuse(f"tried to open {path}: {sealed}")
                if event == "os.rename" and not may_move(path):
                    refuse(f"tried to move {path}: {sealed}")
        elif event in listings:
            if lists_labels(arguments[0]):
                refuse(f"tried to list {arguments[0]}: {sealed}")
        elif event == "ssmlbench.truth":
            refuse(f"tried to read the labels in {arguments[0]}: {sealed}")
        elif event == "ssmlbench.adapter":
            refuse(f"tried to read the data set {arguments[0]} anew: {sealed}")
        elif event == new_interpreter:
            refuse(f"tried to start another interpreter, which is not watched: {sealed}")
        elif event in programs:
            note(f"{started} while it trained: {_program(arguments)}")
        if event in changes and (path := changed(event, arguments)) is not None:
            refuse(f"tried to change {path}: {protected}")

    def may_move(path: Any) -> bool:
        for place in meanings(path):
            for root in roots:
                if root == place or root.startswith(place + separator):
                    return False
            # Other runs, and this run's folder itself: the judge would write into what takes its place.
            if place.startswith(results) and not place.startswith(own):
                return False
        return True

    def refuse(what: str) -> None:
        report(what)
        raise PermissionError(what)

    sys.addaudithook(hook)


def _sealed(places: SealedPlaces, needed: Iterable[Path]) -> Callable[[Any], bool]:
    """The function that tells whether a path, as `open` takes it, is sealed.

    What it and the function below use is bound when they are made, as in the hook.
    """
    sealed_place, meanings, listed = (
        _sealed_place(places, needed),
        path_meanings(),
        can_list_open_files(),
    )
    fsdecode, isabs, is_a, integer, separator = os.fsdecode, os.path.isabs, isinstance, int, os.sep
    labels_folder, card, holds_results = LABELS, CARD, HOLDS_RESULTS

    def sealed(path: Any) -> bool:
        if path is None or is_a(path, integer):
            return False
        try:
            for place in meanings(path):
                if sealed_place(place):
                    return True
            return not listed and named_so(fsdecode(path))
        except Exception:  # another process's files may not be looked at; or builtins are changed
            return True

    def named_so(text: str) -> bool:
        # It may be meant in any open folder, and this system does not list them.
        *folders, name = text.split(separator)
        return not isabs(text) and (labels_folder in folders or name in (card, *holds_results))

    return sealed


def _lists_labels(places: SealedPlaces, needed: Iterable[Path]) -> Callable[[Any], bool]:
    """The function that tells whether a folder, if listed, names labels: one below the raw folder.

    The raw folder itself may be one that Python imports from, and so may the working folder.
    """
    raw, meanings, separator, here = places.raw, path_meanings(), os.sep, os.curdir
    opened = (*map(_real, needed), _real(here))  # those above the raw folder open nothing in it
    open_places = frozenset(place for place in opened if place.startswith(f"{raw}{separator}"))
    open_folders = tuple(f"{place}{separator}" for place in open_places)
    above_open = frozenset(str(above) for place in open_places for above in Path(place).parents)

    def lists_labels(path: Any) -> bool:
        if not raw:
            return False
        for place in meanings(here if path is None else path):
            if not place.startswith(raw + separator) or f"{separator}." in place[len(raw) :]:
                continue  # hidden folders hold no rows
            is_open = place in open_places or place.startswith(open_folders)
            if not is_open and place not in above_open:
                return True
        return False

    return lists_labels


def _sealed_place(places: SealedPlaces, needed: Iterable[Path]) -> Callable[[str], bool]:
    """The function that tells whether a real path is sealed, by its folder, its name or its inode."""
    raw, tasks, results, inodes = places.raw, places.tasks, places.results, places.inodes
    own = ("self", "thread-self", str(os.getpid()))
    copies = (*places.copies, *places.other_results)
    copied = tuple(f"{place}{os.sep}" for place in copies)
    opened = [_real(path) for path in needed]
    inside_raw = [place for place in opened if place.startswith(f"{raw}{os.sep}")]
    open_places, open_folders = frozenset(inside_raw), tuple(f"{p}{os.sep}" for p in inside_raw)
    open_runs = [place for place in opened if place.startswith(f"{results}{os.sep}")]
    readable, readable_folders = frozenset(open_runs), tuple(f"{p}{os.sep}" for p in open_runs)
    depth = RUN_DEPTH
    basename, stat, separator, memory = os.path.basename, os.stat, os.sep, MEMORY
    sealed_in_tasks, holds_labels, holds_results = in_tasks, HOLDS_LABELS, HOLDS_RESULTS
    part, own_run = PART, places.own  # training writes unfinished files to its run's folder
    run_files, spec_file, dirname = frozenset(RUN_FILES), SPEC, os.path.dirname

    def sealed_place(place: str) -> bool:
        name = basename(place)
        if place.startswith(tasks + separator):
            return sealed_in_tasks(place[len(tasks) :])
        if place.startswith("/proc/"):
            parts = place.split("/")
            return parts[2] not in own and not memory.isdisjoint(parts[3:])
        if name in holds_labels or place in copies or place.startswith(copied):
            return True
        if name in run_files and not place.startswith(own_run + separator) and of_a_run(place):
            return True  # of any results folder
        if place.startswith(results + separator):
            if name.endswith(holds_results):
                return True
            of_run = place[len(results) + 1 :].count(separator) >= depth
            if of_run and place not in readable and not place.startswith(readable_folders):
                return True  # models and histories of other runs were made with other labels
        if name.endswith(part) and place.startswith(results + separator):
            return not place.startswith(own_run + separator)
        if raw and place.startswith(raw + separator):
            is_open = place in open_places or place.startswith(open_folders)
            return not (name.endswith((".py", ".pyc")) or is_open)
        return is_label_file(place)

    def of_a_run(place: str) -> bool:
        try:
            stat(f"{dirname(place)}{separator}{spec_file}")
        except (OSError, ValueError):
            return False
        return True

    def is_label_file(place: str) -> bool:
        try:
            status = stat(place)
        except (OSError, ValueError):
            return False
        return (status.st_dev, status.st_ino) in inodes

    return sealed_place


def places_to_read() -> list[Path]:
    """Folders that training reads whatever the data set: a user's data may lie in a folder above them."""
    from huggingface_hub import constants
    from torch import hub

    models = [constants.HF_HOME, constants.HF_HUB_CACHE, hub.get_dir()]
    return [*map(Path, models), Path(sys.base_prefix), *(cache_root() / name for name in WRITTEN)]


def _program(arguments: tuple[Any, ...]) -> str:
    first = next((part for part in arguments if isinstance(part, str | bytes | os.PathLike)), "")
    return os.fsdecode(first)


def _real(path: Path | str) -> str:
    return os.path.realpath(path)
