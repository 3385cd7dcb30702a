"""Reads finished runs back from results folders."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ssmlbench.core.errors import UserError
from ssmlbench.core.spec import RunSpec


@dataclass(frozen=True)
class Finished:
    """One finished run, read back."""

    spec: RunSpec
    result: dict[str, Any]
    folder: Path

    @property
    def finished_at(self) -> str:
        """ISO time in UTC: the run's own word, or its file's where an older run has none."""
        if said := self.result.get("made_with", {}).get("finished"):
            return str(said)
        written = (self.folder / "result.json").stat().st_mtime
        return datetime.fromtimestamp(written, UTC).isoformat(timespec="milliseconds")


def read_finished(roots: Iterable[Path]) -> tuple[list[Finished], list[str]]:
    """All finished runs below the roots, and a line for every result that cannot be read.

    The same run found below two roots counts once: its folder's name has its hash.
    """
    runs: dict[str, Finished] = {}
    complaints = []
    for root in map(Path, roots):
        if not root.is_dir():
            raise UserError(f"no results folder at {root}; `ssmlbench run` makes one")
        with _kept_without_collection():
            for place in run_places(root):
                try:
                    run = _read(root, place)
                except FileNotFoundError:
                    continue  # not finished
                except (OSError, ValueError, KeyError, TypeError) as error:
                    complaints.append(
                        f"{root / place / 'result.json'}: not a result of ssmlbench "
                        f"({type(error).__name__}), left out"
                    )
                    continue
                runs.setdefault(place, run)
    return list(runs.values()), complaints


def run_places(root: Path) -> list[str]:
    """The paths of all run folders below the root, sorted. Globbing takes three times as long."""
    places = [""]
    for _ in ("data set", "regime", "method", "run"):
        below = []
        for place in places:
            with os.scandir(root / place) as entries:
                start = f"{place}/" if place else ""
                below += [
                    f"{start}{entry.name}"
                    for entry in entries
                    if entry.is_dir() and entry.name[0] != "."
                ]
        places = below
    return sorted(places)


def _read(root: Path, place: str) -> Finished:
    with open(f"{root}/{place}/result.json", "rb") as stream:
        result = json.loads(stream.read())
    if not {"map", "hamming"} <= set(result["metrics"]["threshold"]["default"]):
        raise KeyError("metrics")
    return Finished(RunSpec.from_dict(result["spec"]), result, root / place)


@contextmanager
def _kept_without_collection() -> Iterator[None]:
    """Thousands of results are made to stay: looking for garbage among them, now and whenever a
    table is made later, would be a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
