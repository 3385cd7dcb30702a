"""What is fuzzed: one kind of content, good examples of it and the code that reads it.

A reader may raise a UserError or a DamagedFile, and nothing else.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ssmlbench.core.errors import DamagedFile, UserError

Read = Callable[[bytes, Path], None]
Seeds = Callable[[], list[bytes]]


@dataclass(frozen=True)
class Target:
    """One kind of file. read: is given a content and an empty folder."""

    read: Read
    seeds: Seeds


def attack(target: Target, content: bytes, folder: Path) -> None:
    """Read a content; anything but a clean error comes out."""
    with warnings.catch_warnings(), suppress(UserError, DamagedFile):
        warnings.simplefilter("ignore")
        target.read(content, folder)


def fixed(*contents: bytes) -> Seeds:
    return lambda: list(contents)


def as_json(values: object) -> Seeds:
    return fixed(json.dumps(values).encode())
