"""Reads specs and finished runs back from results folders."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from ssmlbench.core.checksums import FIELD, checksum_holds
from ssmlbench.core.errors import UserError, in_the_way, is_passing
from ssmlbench.core.files import file_stamp
from ssmlbench.core.garbage import no_collection
from ssmlbench.core.plain_files import plain_bytes
from ssmlbench.core.spec import RunSpec
from ssmlbench.runs.index import INDEXED_RUNS, RunIndex
from ssmlbench.runs.per_label import PerLabel
from ssmlbench.runs.schema import (
    MISPLACED,
    REPEATS_IT,
    MetricValues,
    Result,
    SchemaError,
    is_of_folder,
    parse_result,
    parse_spec,
)

LEFT_IN_FILE = ("spec", "per_label", "files", FIELD)
"""Fields of result.json that `read_finished` leaves out: `Finished` has the spec, the rest is large."""

MOST_LINES = 5
"""The most lines about results that are left out for one reason; the last line counts the rest."""


@dataclass
class ComputedMetrics:
    """Metrics that a result lacks, computed from the stored scores when a board needs them."""

    metrics: MetricValues | None = None  # None: not needed so far
    reason: str = ""  # why there are none


@dataclass(frozen=True)
class Finished:
    """One finished run, read back."""

    spec: RunSpec
    result: Result
    folder: Path
    computed: ComputedMetrics = field(default_factory=ComputedMetrics, repr=False, compare=False)

    @property
    def finished_at(self) -> str:
        """ISO time in UTC: as the run recorded it, or its file's time for runs that did not."""
        if recorded := self.result.get("made_with", {}).get("finished"):
            return str(recorded)
        written = (self.folder / "result.json").stat().st_mtime
        return datetime.fromtimestamp(written, UTC).isoformat(timespec="milliseconds")

    @property
    def per_label(self) -> PerLabel | None:
        """The results of each label; None if the run has none. `read_finished` leaves them in the file."""
        if "per_label" in self.result:
            return self.result["per_label"]
        whole = read_result(self.folder)
        return whole.result.get("per_label") if isinstance(whole, Finished) else None

    @property
    def diverged(self) -> str:
        """Why a tuning trial has no scores; empty for every other run."""
        return self.result.get("diverged", "")


@dataclass(frozen=True)
class Unreadable:
    """A file that this version cannot read, and why."""

    file: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


def read_spec(file: Path) -> RunSpec | Unreadable:
    """The spec in a spec.json."""
    try:
        values = _load(file)
        if isinstance(values, dict):
            if not checksum_holds(values):
                return Unreadable(file, "damaged, its content is not what was written")
            values.pop(FIELD, None)
        return parse_spec(values)
    except FileNotFoundError:
        return Unreadable(file, "no such file")
    except SchemaError as error:
        return Unreadable(file, str(error))


def read_result(folder: Path) -> Finished | Unreadable:
    """The finished run in a folder."""
    file = folder / "result.json"
    try:
        spec, result = _parse_of_folder(_load(file), folder.name)
    except FileNotFoundError:
        return Unreadable(file, "no such file")
    except SchemaError as error:
        return Unreadable(file, str(error))
    return Finished(spec, result, folder)


def read_finished(roots: Iterable[Path]) -> tuple[list[Finished], list[str]]:
    """All finished runs below the roots, and lines for the results that cannot be read.

    Their results lack the fields of LEFT_IN_FILE. A run below two roots comes twice; merge.py decides
    which one counts.
    """
    runs: list[Finished] = []
    left_out: dict[str, list[Path]] = defaultdict(list)  # by reason
    for root in map(Path, roots):
        if not root.is_dir():
            raise UserError(f"no results folder at {root}; `ssmlbench run` makes one")
        with no_collection():
            paths = run_paths(root, lambda error: _leave_out(error, Path(error.filename), left_out))
            index = RunIndex(root)
            if len(paths) >= INDEXED_RUNS:
                index.open()
            for path in paths:
                try:
                    spec, result = _read_indexed(root, path, index)
                except FileNotFoundError:
                    continue  # not finished
                except SchemaError as error:
                    left_out[str(error)].append(root / path / "result.json")
                    continue
                except OSError as error:
                    _leave_out(error, root / path / "result.json", left_out)
                    continue
                runs.append(Finished(spec, result, root / path))
            if len(paths) >= INDEXED_RUNS:
                index.save()
    return runs, list(_left_out_lines(left_out))


def _leave_out(error: OSError, path: Path, left_out: Mapping[str, list[Path]]) -> None:
    """Leave out what cannot be read, such as another user's folder."""
    if is_passing(error):  # a board without this run would show other numbers
        raise error
    left_out[f"cannot be read ({error.strerror})"].append(path)


def _left_out_lines(left_out: Mapping[str, Sequence[Path]]) -> Iterator[str]:
    """A line for each result that is left out; of many with the same reason, one with their number."""
    for reason, files in left_out.items():
        named = files if len(files) <= MOST_LINES else files[: MOST_LINES - 1]
        yield from (f"{file}: left out, {reason}" for file in named)
        if more := len(files) - len(named):
            yield f"{more:,} more results: left out, {reason}"


def _read_indexed(root: Path, path: str, index: RunIndex) -> tuple[RunSpec, Result]:
    """A result from the index if its file has not changed, else from the file."""
    file = f"{root}/{path}/result.json"
    now = file_stamp(file)
    known = index.get(path, now)
    if known is None:
        spec, result = _parse_of_folder(_load(file), path.rpartition("/")[2])
        values = {key: value for key, value in result.items() if key not in LEFT_IN_FILE}
        index.put(path, now, spec, values)
        return spec, cast(Result, values)
    return known


def _parse_of_folder(values: object, name: str) -> tuple[RunSpec, Result]:
    """The spec and result of a run, which must be the one that its folder is named after."""
    spec, result = parse_result(values)
    if not is_of_folder(result, name):
        raise SchemaError(MISPLACED)
    return spec, result


def run_paths(root: Path, unreadable: Callable[[OSError], None] | None = None) -> list[str]:
    """The relative paths of all run folders below the root, sorted; three times as fast as a glob.

    unreadable: called with the error of a folder that cannot be listed; without it, the error is raised.
    """
    paths = [""]
    for _ in ("data set", "regime", "method", "run"):
        below = []
        for path in paths:
            try:
                with os.scandir(root / path) as entries:
                    start = f"{path}/" if path else ""
                    below += [
                        f"{start}{entry.name}"
                        for entry in entries
                        if entry.name[0] != "." and _is_folder(entry)
                    ]
            except FileNotFoundError:
                continue  # a run that writes nothing deletes its folders at its end
            except OSError as error:
                if unreadable is None:
                    raise
                unreadable(error)
        paths = below
    return sorted(paths)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _load(file: Path | str) -> object:
    try:
        return json.loads(plain_bytes(Path(file)))
    except FileNotFoundError:
        raise
    except OSError as error:
        if is_passing(error):  # a board without this run would show other numbers
            raise
        remedy = REPEATS_IT if in_the_way(Path(file)) else "make it readable"
        raise SchemaError(f"cannot be read ({error.strerror}); {remedy}") from None
    except (ValueError, RecursionError):
        raise SchemaError(f"damaged, not a whole JSON file; {REPEATS_IT}") from None
