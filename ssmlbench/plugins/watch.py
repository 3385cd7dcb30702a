"""Watches what plugin files open in a process that imports them only to read their declarations.

That process can read labels, so plugin code is refused the files that hold them, through Python. A
training process has a seal of its own (runs/seal.py).
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from ssmlbench.core.paths import cache_root
from ssmlbench.core.sealed_files import HOLDS_LABELS, HOLDS_RESULTS, INDEX, TASKS, in_tasks

EVENTS = ("open", "os.rename", "os.link", "os.symlink", "os.remove", "sqlite3.connect")

_files: set[str] = set()
_attempts: dict[str, list[str]] = defaultdict(list)


def watch(file: Path) -> None:
    """From now on, refuse the code of this file what holds labels or results."""
    if not _files:
        sys.addaudithook(_hook)
    _files.add(str(file))


def attempts_of(file: Path | str) -> list[str]:
    """What the code of a plugin file tried to open."""
    return list(_attempts.get(str(file), ()))


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in EVENTS:
        return
    file = _plugin_on_the_stack()
    if file is None:
        return
    for path in arguments[:2]:
        if isinstance(path, str | bytes | os.PathLike) and _is_sealed(path):
            what = f"tried to open {os.fsdecode(path)}"
            _attempts[file].append(what)
            raise PermissionError(f"{what}: labels are sealed")


def _plugin_on_the_stack() -> str | None:
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename in _files:
            return frame.f_code.co_filename
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _is_sealed(path: str | bytes | os.PathLike[str]) -> bool:
    place = os.path.realpath(os.fsdecode(path).removeprefix("file:").partition("?")[0])
    tasks, index = (os.path.realpath(cache_root() / name) + os.sep for name in (TASKS, INDEX))
    if place.startswith(tasks):
        return in_tasks(place[len(tasks) - 1 :])
    return place.startswith(index) or Path(place).name.endswith((*HOLDS_LABELS, *HOLDS_RESULTS))
