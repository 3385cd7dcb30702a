"""Watches the files that plugins open in a process that imports them only to read their declarations.

That process can read labels, so Python code of plugins is refused the files that hold them. A training
process has its own seal (runs/seal.py).
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from ssmlbench.core.path_meanings import path_meanings
from ssmlbench.core.paths import cache_root
from ssmlbench.core.process_environment import code_of_command, is_fixed, present_command
from ssmlbench.core.protected_files import CHANGES, NEW_INTERPRETER, changed_path
from ssmlbench.core.sealed_files import (
    HOLDS_LABELS,
    HOLDS_RESULTS,
    INDEX,
    PROTECTED,
    SEALED,
    TASKS,
    in_tasks,
)
from ssmlbench.plugins.known_code import is_known_code
from ssmlbench.plugins.tool_state import ToolState, first_change, tool_state

EVENTS = frozenset(("open", "sqlite3.connect", NEW_INTERPRETER, *CHANGES))
TWO_PATHS = frozenset(("os.rename", "os.link", "os.symlink"))
"""Events whose first two arguments are paths; of the others, only the first is."""
OWN_MODULES = {"ssmlbench", "__main__"}

_files: set[str] = set()
_attempts: dict[str, list[str]] = defaultdict(list)
_threads: dict[threading.Thread, str] = {}
"""Threads that were started while a plugin file was imported."""
_meanings = path_meanings()
_importing: tuple[str, frozenset[int]] | None = None
"""The plugin file that is being imported, and the threads that existed before."""
_changed: Callable[[str, tuple[Any, ...]], str | None] | None = None
"""Tells which protected file an event changes."""
_ending = False
"""Whether Python is shutting down."""
_before: tuple[object, ToolState] | None = None
"""The command, and the modules of this tool before the first plugin file was imported in it."""


@contextmanager
def watched_import(file: Path) -> Iterator[None]:
    """Import a plugin file; from now on, its code is refused the files of labels and results.

    This includes threads that were started meanwhile, and in a command later ones, whatever they call, and
    code that runs when Python ends.
    """
    global _importing, _changed, _before  # noqa: PLW0603
    if not _files:
        sys.addaudithook(_hook)
    command = present_command()
    if command is not None and (_before is None or _before[0] is not command):
        _before = command, tool_state()
    _files.add(str(file))
    _changed = changed_path(_files)
    # What Python writes of modules that a plugin imports cannot be told from what the plugin writes.
    sys.dont_write_bytecode = True
    before, alive = _importing, threading.enumerate()
    _importing = str(file), frozenset(sys._current_frames())
    try:
        yield
    finally:
        _importing = before
        _threads.update(dict.fromkeys(set(threading.enumerate()) - set(alive), str(file)))
        atexit.register(_note_end)  # Python calls what was registered last first


def remember_state(module: ModuleType) -> None:
    """Remember a built-in plugin as it is now, just imported: a plugin file may have asked for it."""
    if _before is not None:
        _before[1].update(tool_state(module))


def _note_end() -> None:
    global _ending  # noqa: PLW0603
    _ending = True


def imported_files() -> frozenset[str]:
    """The plugin files of users that were imported in this process."""
    return frozenset(_files)


def attempts_of(file: Path | str) -> list[str]:
    """The attempts of a plugin file's code to open sealed files, or to change this tool in a command."""
    state = _before[1] if _before is not None and _before[0] is present_command() else {}
    if state and (changed := first_change(state, _files)):
        return [f"changed {changed}: {PROTECTED}"]
    return list(_attempts.get(str(file), ()))


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in EVENTS:
        return
    file = _plugin_on_the_stack()
    if file is None and not is_fixed():
        return
    if (what := _attempt(event, arguments)) is None:
        return
    if file is None:
        if is_known_code(event, sys._getframe(1), code_of_command(), imported_files()):
            return
        file = next(iter(_files))
        what += "" if len(_files) == 1 else " (or the code of another plugin file did)"
    _attempts[file].append(what)
    raise PermissionError(what)


def _attempt(event: str, arguments: tuple[Any, ...]) -> str | None:
    """What a plugin tries if this event is one of its code; None if it may do so."""
    if event == NEW_INTERPRETER:
        return f"tried to start another interpreter, which is not watched: {SEALED}"
    for path in arguments[: 2 if event in TWO_PATHS else 1]:
        if isinstance(path, str | bytes | os.PathLike) and _is_sealed(event, path):
            return f"tried to open {os.fsdecode(path)}: {SEALED}"
    if _changed is not None and (changed := _changed(event, arguments)) is not None:
        return f"tried to change {changed}: {PROTECTED}"
    return None


def _plugin_on_the_stack() -> str | None:
    frame, modules = sys._getframe(2), set()
    while frame is not None:
        for place in (frame.f_code.co_filename, frame.f_globals.get("__file__")):
            if place in _files:
                return str(place)
        modules.add(str(frame.f_globals.get("__name__")).partition(".")[0])
        frame = frame.f_back  # type: ignore[assignment]
    if _importing and threading.get_ident() not in _importing[1]:
        return _importing[0]
    if _threads and (file := _threads.get(threading.current_thread())):
        return file
    # At the end of Python, or in a command, code of neither this tool nor a user's program is a plugin's.
    foreign = not modules & OWN_MODULES and (_ending or is_fixed())
    return next(iter(_files)) if foreign else None


def _is_sealed(event: str, path: str | bytes | os.PathLike[str]) -> bool:
    if event == "sqlite3.connect":
        path = os.fsdecode(path).removeprefix("file:").partition("?")[0]
    tasks, index = (os.path.realpath(cache_root() / name) + os.sep for name in (TASKS, INDEX))
    for place in _meanings(path):
        if place.startswith(tasks):
            if in_tasks(place[len(tasks) - 1 :]):
                return True
        elif place.startswith(index) or Path(place).name.endswith((*HOLDS_LABELS, *HOLDS_RESULTS)):
            return True
        elif event == "os.rename" and any(p.startswith(place + os.sep) for p in (tasks, index)):
            return True  # what is sealed would lie elsewhere
    return False
