"""Finds a prepared data set in this machine's cache by its fingerprint. prepare.py writes it."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from ssmlbench.core.errors import DamagedFile, UserError
from ssmlbench.core.files import read_own_json
from ssmlbench.core.paths import cache_root
from ssmlbench.core.sealed_files import TASKS
from ssmlbench.data.task import Task, card_file

UNFINISHED = ".unfinished"
"""The suffix of the folder of a data set that is being written."""

TASK_NAME = re.compile(r"[^.].*-v.+\.(?P<format>\d+)(-[0-9a-f]+)?")
"""How the folders of prepared data sets are called: other programs keep folders there too."""


class NotPrepared(UserError):
    """The cache has no usable copy of the data set."""


def task_folders() -> list[Path]:
    """Every folder of a prepared data set in the cache, whole or damaged."""
    folders = (cache_root() / TASKS).glob("*/")
    return sorted(folder for folder in folders if TASK_NAME.fullmatch(folder.name))


def prepared_names() -> set[str]:
    """The names of the data sets in the cache; what cannot be read has none."""
    names = set()
    for folder in task_folders():
        with suppress(FileNotFoundError, DamagedFile):
            names.add(str(read_own_json(card_file(folder)).get("name")))
    return names


def prepared_task(name: str, fingerprint: str) -> Task:
    """The prepared data set with a fingerprint. NotPrepared says why there is none.

    The cache may hold several copies of one content: of an older version, or damaged. Any copy that
    can be used will do. name: of the data set, for the message.
    """
    damages = list[tuple[bool, DamagedFile]]()
    for folder in task_folders():
        ours = False
        try:
            ours = read_own_json(card_file(folder)).get("fingerprint") == fingerprint
            if ours:
                return Task(folder)
        except FileNotFoundError:  # emptied or deleted by another process
            continue
        except DamagedFile as damage:
            damages.append((ours, damage))
    # A damaged file of this data set is the reason; any other damaged card may be.
    damages.sort(key=lambda found: not found[0])
    about = f" ({damages[0][1]}; the next run on it prepares it again)" if damages else ""
    raise NotPrepared(f"data set {name} is not prepared on this machine{about}")
