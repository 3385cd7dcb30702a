"""Verifies every file of results folders and of the cache, and repairs what can be repaired.

It lists the damaged files. Records are written again from whole files, damaged cache files are deleted or
made again, and leftovers of killed processes are deleted. Nothing else is ever deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ssmlbench.core.checksums import failures, verify_file, verify_stamp
from ssmlbench.core.errors import DamagedFile, UserError
from ssmlbench.core.files import PART, discard, read_json, read_own_json, write_json
from ssmlbench.core.keep_alive import is_fresh
from ssmlbench.core.locks import Busy, Lock, is_held
from ssmlbench.core.paths import cache_root
from ssmlbench.core.sealed_files import TASKS
from ssmlbench.core.spec import RunSpec
from ssmlbench.data.prepare import prepare
from ssmlbench.data.prepared import UNFINISHED, task_folders
from ssmlbench.data.task import Task, card_file
from ssmlbench.grid.queue_file import queue_folder, sweep
from ssmlbench.grid.study import trials_root
from ssmlbench.inputs.decoded_cache import cached_images
from ssmlbench.inputs.feature_cache import cached_features
from ssmlbench.inputs.shards import ShardFolder
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.finished import Finished, read_result, read_spec, run_paths
from ssmlbench.runs.folder import RunFolder


@dataclass(frozen=True)
class Finding:
    """A problem, and the remedy that was or would be applied."""

    path: Path
    problem: str
    remedy: str
    repaired: bool = True  # nothing is left for the user to do
    spec: RunSpec | None = None  # of a run that has to be repeated


@dataclass
class Checkup:
    """The findings of a check of results folders and of the cache."""

    dry_run: bool = False
    findings: list[Finding] = field(default_factory=list)
    files: int = 0
    bytes: int = 0

    def results(self, root: Path) -> None:
        """Check the runs, trials, studies and queue files of a results folder."""
        if not root.is_dir():
            raise UserError(f"no results folder at {root}; `ssmlbench run` makes one")
        for folder in (root, trials_root(root)):
            if folder.is_dir():
                for path in run_paths(folder):
                    if path.rpartition("/")[2] != "studies":
                        self._run(RunFolder(folder / path))
        for file in sorted(trials_root(root).glob("*/*/*/studies/*.json")):
            self._study(file)
        self._queue(root)
        self._leftovers(root.rglob(f".*{PART}"), lambda file: not is_fresh(file))
        self._leftovers(root.glob(".writable-*"), lambda file: not is_fresh(file))

    def cache(self, plugins: Plugins) -> None:
        """Check the prepared data sets, the cached features and the decoded images."""
        root = cache_root()
        for folder in sorted((root / TASKS).glob(f"*{UNFINISHED}/")):
            self._unfinished(folder)
        for folder in task_folders():
            self._task(folder, plugins)
        for features in cached_features():
            self._shards(features, features.damaged_state())
        for images in cached_images():
            self._shards(images)
        self._leftovers(root.rglob(f".*{PART}"), lambda file: not is_fresh(file))
        self._locks(root.rglob("*.lock"))
        self._leftovers(root.rglob("*.lease.*"), lambda file: not is_fresh(file))

    # ------------------------------------------------------------------------------ results folders

    def _run(self, folder: RunFolder) -> None:
        self._count(folder.path.iterdir())
        if is_held(folder.lock_file):
            return
        if folder.result_file.is_file():
            self._finished_run(folder)
        else:
            for file in (folder.checkpoint_file, folder.judgements_file):
                if file.is_file() and failures(verify_stamp, file):
                    self._delete(file, "damaged", "deleted; the run starts from its beginning")
        if folder.lock_file.is_file():
            self._locks([folder.lock_file])

    def _finished_run(self, folder: RunFolder) -> None:
        damaged = _damaged_files(folder)
        for damage in damaged:
            spec = _known_spec(folder)
            remedy = "the same `ssmlbench run` makes the run again"
            remedy += "; so does `ssmlbench doctor --rerun`" if spec else ""
            self._add(damage.file, damage.reason, remedy, repaired=False, spec=spec)
        run = read_result(folder.path)
        if isinstance(run, Finished) and not isinstance(read_spec(folder.spec_file), RunSpec):
            lost = Finding(folder.spec_file, "damaged or missing", "written again from the result")
            self._repair(lost, lambda: write_json(folder.spec_file, run.spec.as_dict()))
        if folder.computed_file.is_file() and read_json(folder.computed_file) is None:
            self._delete(folder.computed_file, "damaged", "deleted; computed again when needed")
        if not damaged:
            temporary = (folder.checkpoint_file, folder.judgements_file, folder.progress_file)
            for file in (file for file in temporary if file.is_file()):
                self._delete(file, "left by a run that is finished", "deleted")

    def _study(self, file: Path) -> None:
        self._count([file])
        try:
            read_own_json(file)
        except DamagedFile as damaged:
            again = (
                "`ssmlbench run --tuned` or the same `ssmlbench tune` rebuilds it from its trials"
            )
            self._add(file, damaged.reason, again, repaired=False)

    def _queue(self, root: Path) -> None:
        files = sorted(queue_folder(root).glob("*.json"))
        self._count(files)
        for file in files:
            if read_json(file) is None and not is_held(file.with_suffix(".lock")):
                self._delete(file, "damaged", "deleted; its runs no longer count as queued")
        if not self.dry_run:
            sweep(root)

    # ---------------------------------------------------------------------------------------- cache

    def _task(self, folder: Path, plugins: Plugins) -> None:
        self._count(folder.iterdir())
        damaged = _task_damage(folder)
        if damaged is None:
            return
        card = read_json(card_file(folder)) or {}
        name = card.get("name") if card.get("folder", folder.name) == folder.name else None
        adapter = plugins.datasets[name]() if name in list(plugins.datasets) else None
        remedy = "prepared again" if adapter else "prepared again when it is used next"
        finding = Finding(damaged.file, damaged.reason, remedy)

        def prepare_again() -> None:
            if adapter is not None:
                prepare(adapter)

        self._repair(finding, prepare_again)

    def _unfinished(self, folder: Path) -> None:
        lock = folder.with_name(f"{folder.stem}.lock")
        if not is_held(lock):
            finding = Finding(folder, "left by a process that was killed", "deleted")
            self._repair(finding, lambda: shutil.rmtree(folder, ignore_errors=True))

    def _shards(self, folder: ShardFolder, more: Sequence[DamagedFile] = ()) -> None:
        """Check cached rows. more: other damaged files of the folder."""
        self._count(folder.path.iterdir())
        if is_held(folder.lock_file):
            return
        damaged = [*folder.damaged(), *more]
        for damage in damaged:
            finding = Finding(damage.file, damage.reason, "deleted; computed again when needed")
            self._repair(finding, partial(discard, damage.file))
        if damaged and not self.dry_run:
            discard(folder.about_file)

    # ------------------------------------------------------------------------------------- findings

    def _count(self, files: Iterable[Path]) -> None:
        for file in files:
            if file.is_file():
                self.files += 1
                self.bytes += file.stat().st_size

    def _leftovers(self, files: Iterable[Path], unused: Callable[[Path], bool]) -> None:
        for file in sorted(files):
            if file.is_file() and unused(file):
                self._delete(file, "left by a process that has ended", "deleted")

    def _locks(self, files: Iterable[Path]) -> None:
        for file in sorted(files):
            if file.is_file() and not is_held(file):
                finding = Finding(file, "a lock that nobody holds", "deleted")
                self._repair(finding, partial(_remove_lock, file))

    def _delete(self, file: Path, problem: str, remedy: str) -> None:
        self._repair(Finding(file, problem, remedy), lambda: discard(file))

    def _repair(self, finding: Finding, repair: Callable[[], object]) -> None:
        """Repair a problem, unless this is a dry run; after a failure, the user has to."""
        if self.dry_run:
            self._add(finding.path, finding.problem, f"would be {finding.remedy}")
            return
        try:
            repair()
        except (UserError, OSError) as error:
            self._add(finding.path, finding.problem, str(error), repaired=False)
        else:
            self.findings.append(finding)

    def _add(
        self,
        path: Path,
        problem: str,
        remedy: str,
        repaired: bool = True,
        spec: RunSpec | None = None,
    ) -> None:
        self.findings.append(Finding(path, problem, remedy, repaired, spec))


def _damaged_files(folder: RunFolder) -> list[DamagedFile]:
    """The damaged files of a finished run; the content of every file is compared."""
    try:
        recorded = folder.recorded_files()
    except DamagedFile as damaged:
        return [damaged]
    errors = [
        damage
        for name, facts in recorded.items()
        for damage in failures(
            partial(verify_file, facts=facts, record=folder.result_file), folder.path / name
        )
    ]
    if folder.model_file.is_file() and folder.model_file.name not in recorded:  # an older run
        errors += failures(_verify_json, folder.model_file)
    return errors


def _verify_json(file: Path) -> None:
    read_own_json(file)


def _known_spec(folder: RunFolder) -> RunSpec | None:
    """The spec of a damaged run, from its result or, if that is damaged, from spec.json."""
    run = read_result(folder.path)
    if isinstance(run, Finished):
        return run.spec
    spec = read_spec(folder.spec_file)
    return spec if isinstance(spec, RunSpec) else None


def _task_damage(folder: Path) -> DamagedFile | None:
    try:
        Task(folder).verify()
    except FileNotFoundError:
        return DamagedFile(card_file(folder), "it is missing")
    except DamagedFile as damaged:
        return damaged
    return None


def _remove_lock(file: Path) -> None:
    """Delete the file of a lock while holding it, so that nobody else can."""
    lock = Lock(file)
    with suppress(Busy):
        lock.acquire(wait=False)
        lock.release(remove=True)


def reruns(findings: Iterable[Finding]) -> Iterator[RunSpec]:
    """The runs that have to be repeated and whose spec is known, each once."""
    seen = set()
    for finding in findings:
        if finding.spec is not None and finding.spec.hash not in seen:
            seen.add(finding.spec.hash)
            yield finding.spec
