"""A hash of the state of this installation's code files, computed without importing them.

A cache entry under this key is valid until one of these files changes.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from ssmlbench.core.files import file_stamp
from ssmlbench.core.paths import builtin_root

INSTALLED = ("site-packages", "dist-packages")
"""Folders of installed packages: their time changes when a package is installed, updated or removed."""


def code_state() -> str:
    """A hash over the engine's files, the built-in plugins, and the folders of installed packages."""
    package = Path(__file__).resolve().parent.parent
    folders = [package, *(builtin_root() / name for name in ("methods", "datasets"))]
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    installed = [path for path in map(Path, sys.path) if path.name in INSTALLED and path.is_dir()]
    facts = [sys.version, *((str(file), *file_stamp(file)) for file in (*files, *installed))]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
