"""A cache of finished grids, so that repeating a command whose runs are all finished takes no planning.

Planning imports torch and the methods, which takes seconds. Once all runs of a grid are finished, their
list is stored under a key of everything that planning depends on. It only shows that there is nothing to
do: if a run is missing or its files have changed, the grid is planned as usual.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ssmlbench
from ssmlbench.core.code_state import code_state
from ssmlbench.core.errors import DamagedFile, UserError
from ssmlbench.core.files import Stamp, file_stamp, read_placed_json, write_placed_json
from ssmlbench.core.paths import builtin_root, cache_root
from ssmlbench.grid.request import GridRequest
from ssmlbench.runs.folder import RunFolder

if TYPE_CHECKING:
    from ssmlbench.core.spec import RunSpec
    from ssmlbench.data import DatasetAdapter
    from ssmlbench.plugins.loader import Plugins

VERSION = 1
"""Raised when the format of the files changes; a grid of another version has another file."""
MOST_GRIDS = 40
"""Grids in the cache; the oldest are deleted."""
VARIABLES = (
    "SSMLBENCH_",
    "CUDA_",
    "NVIDIA_",
    "HIP_",
    "ROCR_",
    "TORCH",
    "PYTORCH_",
    "HF_",
    "WORLD_",
)
"""Prefixes of the environment variables that may change the plan."""


@dataclass
class CachedGrid:
    """The grid of one command, in the cache before or after it is planned."""

    request: GridRequest
    results: Path  # absolute
    options: Mapping[str, Any]  # other values that the plan depends on, e.g. the device

    def __post_init__(self) -> None:
        self._code = code_state()  # before planning

    def finished_runs(self, plugins: Plugins) -> list[CachedRun] | None:
        """The runs of the grid, if it is in the cache and the files of all runs are unchanged."""
        file = self._file(plugins)
        if file is None:
            return None
        try:
            runs = [CachedRun(*entry) for entry in read_placed_json(file)["runs"]]
        except (OSError, DamagedFile, KeyError, TypeError, ValueError):
            return None
        return runs if all(run.unchanged(self.results) for run in runs) else None

    def store(self, specs: Sequence[RunSpec], plugins: Plugins) -> None:
        """Store the grid, all of whose runs are finished. A failure to write is ignored.

        Encoders with weights and installed plugins may change without a change of the key: such grids
        are planned each time.
        """
        if code_state() != self._code:
            return  # a file was edited while the runs were made
        if any(spec.weights or spec.tuned for spec in specs) or not _all_built_in(specs, plugins):
            return
        if any(_card(plugins, name).get("fingerprint") != data for name, data in _data_of(specs)):
            return  # the data set was prepared again while the runs were made
        file = self._file(plugins)
        if file is None:
            return
        with suppress(OSError, DamagedFile):
            runs = [dataclasses.astuple(CachedRun.of(self.results, spec)) for spec in specs]
            file.parent.mkdir(parents=True, exist_ok=True)
            write_placed_json(file, {"runs": runs}, durable=False)
            known = sorted(file.parent.glob("*.json"), key=lambda file: file.stat().st_mtime)
            for old in known[:-MOST_GRIDS]:
                old.unlink(missing_ok=True)

    def _file(self, plugins: Plugins) -> Path | None:
        """The file of the grid; None if its plan may depend on more than the name of a file covers."""
        if any(file.endswith(".py") for file in (*self.request.plugins, *plugins.files)):
            return None  # a plugin file may import anything
        try:
            request = self.request.completed()
            cards = [_card(plugins, typed) for typed in request.axes["dataset"]]
        except (UserError, OSError):
            return None  # planning reports the error
        if not all(cards):
            return None
        facts = [
            *(VERSION, ssmlbench.__version__, sys.version, platform.node(), str(Path.cwd())),
            *(str(self.results), dataclasses.asdict(request), cards, dict(self.options)),
            {name: text for name, text in os.environ.items() if name.startswith(VARIABLES)},
            sorted(map(str, Path("/dev").glob("nvidia*"))),
            self._code,
        ]
        text = json.dumps(facts, sort_keys=True, default=str)
        key = hashlib.sha256(text.encode()).hexdigest()[:24]
        return cache_root() / "grids" / f"{key}.json"


@dataclass(frozen=True)
class CachedRun:
    """A finished run, with the stamps of its files when all of them were verified."""

    text: str  # as `str(spec)`
    folder: str  # below the results folder
    stamp: Sequence[int]  # of result.json
    sizes: Mapping[str, int]  # of the files beside it

    @classmethod
    def of(cls, results: Path, spec: RunSpec) -> CachedRun:
        """A finished run, as it is now."""
        folder = RunFolder.of(results, spec)
        stamp: Stamp = file_stamp(str(folder.result_file))
        if not folder.finished:
            raise DamagedFile(folder.result_file, "it is not finished")
        sizes = {
            name: facts["bytes"]
            for name, facts in folder.recorded_files().items()
            if (folder.path / name).is_file()
        }
        return cls(str(spec), str(folder.path.relative_to(results)), list(stamp), sizes)

    def unchanged(self, results: Path) -> bool:
        """Whether its files are still there and have not changed."""
        folder = f"{results}{os.sep}{self.folder}{os.sep}"
        try:
            stamp = file_stamp(f"{folder}result.json")
            if stamp != tuple(self.stamp):
                return False
            others = [(file_stamp(folder + name), size) for name, size in self.sizes.items()]
        except OSError:
            return False
        return all(now[1] == size and now[2] <= stamp[2] for now, size in others)

    def weights_file(self, results: Path) -> Path:
        """The file of its model's arrays, if there is one."""
        return RunFolder(results / self.folder).weights_file


def _card(plugins: Plugins, typed: str) -> dict[str, Any]:
    """The card of a prepared data set; empty if it is not prepared."""
    from ssmlbench.data import is_prepared, prepare

    adapter: DatasetAdapter = plugins.datasets[plugins.data_set(typed)]()
    return dataclasses.asdict(prepare(adapter).card) if is_prepared(adapter) else {}


def _data_of(specs: Sequence[RunSpec]) -> set[tuple[str, str]]:
    return {(spec.dataset, spec.data) for spec in specs}


def _all_built_in(specs: Sequence[RunSpec], plugins: Plugins) -> bool:
    from ssmlbench.core.registry import source_file
    from ssmlbench.inputs.encoders import BUILTIN

    methods = {source_file(plugins.methods[name]) for name in {spec.method for spec in specs}}
    names = {encoder.name for encoder in BUILTIN}
    return all(file.parent == builtin_root() / "methods" for file in methods) and all(
        spec.backbone in names for spec in specs
    )
