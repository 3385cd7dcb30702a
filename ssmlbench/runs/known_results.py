"""The folders of runs that this cache knows of, so that a run's seal includes results folders of others.

One small file for each results folder and data set, in the folder of the cache that is sealed itself.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from ssmlbench.core.files import write_atomically
from ssmlbench.core.paths import cache_root
from ssmlbench.core.sealed_files import INDEX

MOST = 50
"""The most folders of a data set that are sealed (the last used): each needs rules of the kernel's lock."""


def _folder(dataset: str) -> Path:
    return cache_root() / INDEX / "results" / dataset


def remember_results(results: Path, dataset: str) -> None:
    """Remember that a results folder holds runs on a data set. Nothing fails if it cannot be written."""
    runs = os.path.realpath(results / dataset)
    name = hashlib.sha256(os.fsencode(runs)).hexdigest()[:16]
    file = _folder(dataset) / name
    with suppress(OSError):
        if file.exists():
            os.utime(file)
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, os.fsencode(runs), durable=False)


def known_results(dataset: str) -> list[Path]:
    """The folders of runs on a data set that are still there, in whatever results folder."""
    try:
        files = sorted(os.scandir(_folder(dataset)), key=lambda e: e.stat().st_mtime, reverse=True)
    except OSError:  # there are none, or one is deleted meanwhile
        return []
    found = []
    for file in files[:MOST]:
        with suppress(OSError, ValueError):
            runs = Path(os.fsdecode(Path(file.path).read_bytes()))
            if runs.is_dir():
                found.append(runs)
    return found
