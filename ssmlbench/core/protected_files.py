"""Which files plugin code may not change: the code that judges runs, and what later commands read."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ssmlbench.core.path_meanings import path_meanings
from ssmlbench.core.paths import builtin_root, cache_root
from ssmlbench.core.sealed_files import LOCK, TASKS

CODE = (".py", ".pyc", ".pth", ".so", ".pyd", ".dylib")
METADATA = (".dist-info", ".egg-info")
"""Folders that declare installed plugins, in any folder that Python imports from."""
COMPILED_FOLDER = "__pycache__"
COMPILED = f"{os.sep}{COMPILED_FOLDER}{os.sep}"
STORED = (".json", ".csv", ".safetensors")
"""Files of runs."""
FOLDERS_ABOVE_A_RUN = 3
"""The folders of data set, regime and method, between a results folder and a run."""
READ_LATER = (TASKS, "grids", "catalogue")
"""Folders of the cache that no plugin code has to write to."""
CHANGES = {
    "os.rename": (0, 1),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.mkdir": (0,),
    "os.utime": (0,),
    "os.setxattr": (0,),
    "os.removexattr": (0,),
    "os.truncate": (0,),
    "os.chmod": (0,),
    "os.chown": (0,),
    "sqlite3.connect": (0,),
}
"""Audit events, and which of their arguments are paths that they change. `open` says it by its flags."""
NEW_INTERPRETER = "cpython.PyInterpreterState_New"
"""The audit event of another interpreter in this process, in which no Python code hears audit events."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def code_folders() -> tuple[str, ...]:
    """Where the code of this tool, its plugins and the libraries lies, with the data they come with."""
    folders = [Path(__file__).parent.parent]
    folders += [builtin_root() / name for name in ("methods", "datasets", "leaderboards")]
    folders += [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    return tuple(map(_folder, [*folders, Path(site.getusersitepackages())]))


def interpreter_files() -> frozenset[str]:
    """The files that Python itself starts from."""
    library = Path(sysconfig.get_config_var("LIBDIR") or os.sep)
    library /= str(sysconfig.get_config_var("INSTSONAME"))
    files = (sys.executable, library, Path(sys.prefix) / "pyvenv.cfg")
    return frozenset(os.path.realpath(file) for file in files)


def changed_path(
    plugins: Iterable[str] = (), results: str = "", own: str = ""
) -> Callable[[str, tuple[Any, ...]], str | None]:
    """The function that tells which protected file an audit event changes, if any.

    plugins: plugin files; code that is beside them is protected too. results: a results folder, of which
    only the run's folder `own` may be written to. What it uses is bound here, and it calls no built-in
    function: plugins may change both.
    """
    codes, code_endings, stored = code_folders(), CODE, STORED
    beside = frozenset(os.path.realpath(os.path.dirname(file)) for file in plugins)  # noqa: PTH120
    imported_from = frozenset(os.path.realpath(entry or os.curdir) for entry in sys.path)
    start, compiled, is_module = interpreter_files(), COMPILED, _is_module(beside, imported_from)
    later = tuple(_folder(cache_root() / name) for name in READ_LATER)
    later += (_folder(sysconfig.get_path("scripts")),)
    whole = frozenset((*(code[:-1] for code in (*codes, *later)), *beside, *imported_from, *start))
    lock = os.path.join(os.path.realpath(own), LOCK) if own else ""  # noqa: PTH118
    of_runs, of_run = (_folder(place) if place else "" for place in (results, own))
    run_depth = of_runs.count(os.sep) + FOLDERS_ABOVE_A_RUN
    changes, writing, meanings, fsdecode = dict(CHANGES), WRITING, path_meanings(), os.fsdecode
    is_a, integer, separator = isinstance, int, os.sep

    def changed(event: str, arguments: tuple[Any, ...]) -> str | None:
        if event == "open":
            flags = arguments[2]
            numbers: tuple[int, ...] = (0,) if is_a(flags, integer) and flags & writing else ()
        else:
            numbers = changes.get(event, ())
        for number in numbers:
            path = arguments[number]
            if event == "sqlite3.connect":
                path = database_file(path)
            if path is None or (event == "open" and is_a(path, integer)):  # it is open already
                continue
            for place in meanings(path):
                if protected(place, event):
                    return place if is_a(path, integer) else fsdecode(path)
        return None

    def protected(place: str, event: str) -> bool:
        if event == "os.rename" and holds_protected(f"{place}{separator}"):
            return True
        if place.startswith(codes):
            # Python, and libraries that compile, keep what they made in a folder beside the source.
            inside = f"{place}{separator}" if event == "os.mkdir" else place
            return compiled not in inside or place.endswith(code_endings)
        if of_runs and place.startswith(of_runs):
            is_ours = place.startswith(of_run) and place != lock
            if event == "os.mkdir":  # training makes its own folder, if it is not there
                made_ours = is_ours or f"{place}{separator}" == of_run
                return not made_ours and place.count(separator) >= run_depth
            return not is_ours and (event != "open" or place.endswith(stored))
        return place.startswith(later) or place in start or is_module(place)

    def holds_protected(folder: str) -> bool:
        for place in whole:  # noqa: SIM110
            if f"{place}{separator}".startswith(folder):
                return True
        return False

    return changed


def _is_module(beside: frozenset[str], imported_from: frozenset[str]) -> Callable[[str], bool]:
    """The function that tells whether a path is that of a module, or of the declaration of a plugin.

    beside: folders with plugin files; imported_from: folders that Python imports from. As `changed_path`.
    """
    endings, metadata, cached = CODE, METADATA, COMPILED_FOLDER
    split, separator, lstat = os.path.split, os.sep, os.lstat

    def is_module(place: str) -> bool:
        # This holds for the working folder too, from which `python -m ssmlbench` imports.
        folder, name = split(place)
        above, inside = split(folder)
        if inside.endswith(metadata) and above in imported_from:
            return True
        if not name.endswith(endings):
            return False
        if inside == cached:
            folder = above
        if folder in beside and (inside == cached or (name.endswith(".py") and exists(place))):
            return True
        if name.startswith("__init__."):
            folder = split(folder)[0]
        while folder not in imported_from:
            if not exists(f"{folder}{separator}__init__.py"):
                return False
            folder = split(folder)[0]
        return True

    def exists(place: str) -> bool:
        try:
            lstat(place)
        except (OSError, ValueError):
            return False
        return True

    return is_module


def database_file(database: Any, decode: Callable[[str], str] = unquote) -> Any:
    """The path in what `sqlite3.connect` is given, which may be a URI; None: it is in memory."""
    text = f"{database}"
    if text in {"", ":memory:"}:
        return None
    return decode(text[5:].partition("?")[0]) if text.startswith("file:") else database


def _folder(path: Path | str) -> str:
    return os.path.realpath(path) + os.sep
