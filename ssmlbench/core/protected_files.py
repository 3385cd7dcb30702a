"""Which files plugin code may not change: the code that judges runs, and what later commands read."""

from __future__ import annotations

import os
import site
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ssmlbench.core.paths import builtin_root, cache_root
from ssmlbench.core.sealed_files import TASKS

CODE = (".py", ".pyc", ".pth", ".so", ".pyd", ".dylib")
STORED = (".json", ".csv", ".safetensors")
"""Files of runs."""
READ_LATER = (TASKS, "grids", "catalogue")
"""Folders of the cache that no plugin code has to write to."""
CHANGES = {"os.rename": (0, 1), "os.link": (1,), "os.symlink": (1,), "os.remove": (0,)}
"""Audit events, and which of their arguments are paths that they change. `open` says it by its flags."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def code_folders() -> tuple[str, ...]:
    """Where the code of this tool, its plugins and the libraries lies."""
    folders = [Path(__file__).parent.parent]
    folders += [builtin_root() / name for name in ("methods", "datasets")]
    folders += [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    return tuple(map(_folder, [*folders, Path(site.getusersitepackages())]))


def changed_path(
    endings: Iterable[str] = CODE, results: str = "", own: str = ""
) -> Callable[[str, tuple[Any, ...]], str | None]:
    """The function that tells which protected file an audit event changes, if any.

    endings: of the files of code that are protected. results: a results folder, of which only the
    run's folder `own` may be written to. What it uses is bound here: plugins may change modules.
    """
    codes, code_endings, stored = code_folders(), tuple(endings), STORED
    later = tuple(_folder(cache_root() / name) for name in READ_LATER)
    of_runs, of_run = (_folder(place) if place else "" for place in (results, own))
    changes, writing, realpath, fsdecode = dict(CHANGES), WRITING, os.path.realpath, os.fsdecode
    text, is_a, integer = str, isinstance, int

    def changed(event: str, arguments: tuple[Any, ...]) -> str | None:
        if event == "open":
            flags = arguments[2]
            paths = arguments[:1] if is_a(flags, integer) and flags & writing else ()
        else:
            paths = tuple(arguments[i] for i in changes.get(event, ()))
        for path in paths:
            if path is not None and not is_a(path, integer) and protected(realpath(fsdecode(path))):
                return text(fsdecode(path))
        return None

    def protected(place: str) -> bool:
        if place.startswith(codes):
            return place.endswith(code_endings)
        if of_runs and place.startswith(of_runs):
            return place.endswith(stored) and not place.startswith(of_run)
        return place.startswith(later)

    return changed


def _folder(path: Path | str) -> str:
    return os.path.realpath(path) + os.sep
