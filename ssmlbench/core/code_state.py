"""A hash of the state of this installation's code files, computed without importing them.

A cache entry under this key is valid until one of these files changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

from ssmlbench.core.paths import builtin_root

INSTALLED = ("site-packages", "dist-packages")
"""Folders of installed packages: their time changes when a package is installed, updated or removed."""


def code_state() -> str:
    """A hash over the engine's files, the built-in plugins, and the folders of installed packages."""
    package = Path(__file__).resolve().parent.parent
    folders = [package, *(builtin_root() / name for name in ("methods", "datasets"))]
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    installed = [path for path in map(Path, sys.path) if path.name in INSTALLED and path.is_dir()]
    facts = [sys.version, *((str(file), *_stamp(file)) for file in (*files, *installed))]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _stamp(file: Path) -> tuple[int, int, int]:
    found = os.stat(file)  # noqa: PTH116 (a Path takes longer, and there are hundreds)
    return found.st_ino, found.st_size, found.st_mtime_ns
