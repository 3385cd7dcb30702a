"""Verifies every file of results folders and of the cache, and repairs what can be repaired.

It lists the damaged files. Records are written again from whole files, damaged cache files are deleted or
made again, and leftovers of killed processes are deleted. Nothing else is ever deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from ssmlbench.core.checksums import failures, verify_file, verify_stamp
from ssmlbench.core.errors import DamagedFile, UserError, is_passing
from ssmlbench.core.files import (
    discard,
    read_json,
    read_own_json,
    remove_folder,
    write_json,
)
from ssmlbench.core.keep_alive import is_fresh
from ssmlbench.core.locks import (
    held_if_free,
    is_held,
)
from ssmlbench.core.paths import cache_root
from ssmlbench.core.protected_files import READ_LATER
from ssmlbench.core.sealed_files import INDEX, TASKS
from ssmlbench.core.spec import RunSpec
from ssmlbench.data.prepare import is_of_another_format, prepare
from ssmlbench.data.prepared import UNFINISHED, task_folders
from ssmlbench.data.task import Task, card_file
from ssmlbench.grid.queue_file import queue_folder, sweep
from ssmlbench.grid.repairs import LEFT, Finding, Repairs, named_below
from ssmlbench.grid.reruns import AGAIN, ANEW, is_of_this_version
from ssmlbench.grid.study import study_files, trials_root
from ssmlbench.inputs.cache_folders import FeatureFolder, cached_features, cached_images
from ssmlbench.inputs.shards import ShardFolder
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.finished import Finished, read_result, read_spec, run_paths
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.seal import WRITTEN

RUN_FOLDERS = f"*/*/*/[0-9]*-{'[0-9a-f]' * 12}"
"""A pattern of the folders of runs in a results folder."""


class Checkup(Repairs):
    """A check of results folders and of the cache."""

    def results(self, root: Path) -> None:
        """Check the runs, trials, studies and queue files of a results folder."""
        if not root.is_dir():
            raise UserError(f"no results folder at {root}; `ssmlbench run` makes one")
        for folder in (root, trials_root(root)):
            if folder.is_dir():
                for path in run_paths(folder, self._unreadable):
                    if path.rpartition("/")[2] != "studies":
                        with self._going_on():
                            self._run(RunFolder(folder / path))
        for studies in sorted(trials_root(root).glob("*/*/*/studies/")):
            for file in study_files(studies):
                self._study(file)
        self._queue(root)
        for folder in (root, trials_root(root)):
            self.files_in_place(sorted(folder.glob(RUN_FOLDERS)))
        self.files_in_place([trials_root(root), queue_folder(root)])
        self.leftovers(root)
        for file in sorted(root.glob(".writable-*")):
            self.delete(file, LEFT, "deleted", lambda file: not is_fresh(file))

    def cache(self, plugins: Plugins) -> None:
        """Check the prepared data sets, the cached features and the decoded images."""
        root = cache_root()
        self.files_in_place(root / name for name in (INDEX, *WRITTEN, *READ_LATER))
        for folder in sorted((root / TASKS).glob(f"*{UNFINISHED}/")):
            self._unfinished(folder)
        for folder in task_folders():
            with self._going_on():
                self._task(folder, plugins)
        for features in cached_features():
            with self._going_on():
                self._shards(features, partial(_damaged_features, features))
        for images in cached_images():
            with self._going_on():
                self._shards(images, images.damaged)
        self.leftovers(root)
        self.locks(named_below(root, "*.lock"))
        for kind in ("*.lock", "*.json", "*.sqlite"):
            self.folders(named_below(root, kind))

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """List a folder that cannot be read, such as another user's, and check the others."""
        try:
            yield
        except OSError as error:
            self._unreadable(error)

    def _unreadable(self, error: OSError) -> None:
        if is_passing(error) or not error.filename:
            raise error
        problem = f"it cannot be read ({error.strerror})"
        remedy = "make it readable and writable, then check it again"
        self.add(Path(error.filename), problem, remedy, repaired=False)

    # ------------------------------------------------------------------------------ results folders

    def _run(self, folder: RunFolder) -> None:
        self.count(_files_in(folder.path))
        if is_held(folder.lock_file):
            return
        if folder.result_file.is_file():
            self._finished_run(folder)
        else:
            self._unfinished_run(folder)
        if folder.lock_file.is_file():
            self.locks([folder.lock_file])
        self.folders(folder.files)

    def _unfinished_run(self, folder: RunFolder) -> None:
        def damaged(file: Path) -> bool:
            return not folder.result_file.is_file() and bool(failures(verify_stamp, file))

        for file in (folder.checkpoint_file, folder.judgements_file):
            remedy = "deleted; the run starts from its beginning"
            self.delete(file, "damaged", remedy, damaged, folder.claim_if_free)
        if isinstance(spec := read_spec(folder.repeat_file), RunSpec):
            self.add(folder.path, "it was damaged, and is not repeated yet", AGAIN, False, spec)
        lost = read_spec(folder.spec_file)
        if not isinstance(lost, RunSpec) and lost.reason.startswith("damaged"):
            remedy = "the same `ssmlbench run` writes it again"
            self.add(folder.spec_file, lost.reason.partition(";")[0], remedy, repaired=False)

    def _finished_run(self, folder: RunFolder) -> None:
        damaged = _damaged_files(folder)
        for damage in damaged:
            spec = _known_spec(folder)
            remedy = AGAIN if spec else AGAIN.partition(";")[0]
            if spec and not is_of_this_version(folder, spec):
                spec, remedy = None, ANEW
            self.add(damage.file, damage.reason, remedy, repaired=False, spec=spec)
        run = read_result(folder.path)
        if isinstance(run, Finished) and not isinstance(read_spec(folder.spec_file), RunSpec):
            lost = Finding(folder.spec_file, "damaged or missing", "written again from the result")
            write = partial(write_json, folder.spec_file, run.spec.as_dict())
            self.repair([lost], write, folder.result_file.is_file, folder.claim_if_free)
        remedy = "deleted; computed again when needed"
        self.delete(folder.computed_file, "damaged", remedy, _is_damaged_json)
        if not damaged:
            left = "left by a run that is finished"
            if folder.scratch.is_dir():
                finding = Finding(folder.scratch, left, "deleted")
                delete, still = partial(remove_folder, folder.scratch), folder.scratch.is_dir
                self.repair([finding], delete, still, folder.claim_if_free)
            for file in (
                folder.checkpoint_file,
                folder.judgements_file,
                folder.progress_file,
                folder.repeat_file,
            ):
                self.delete(
                    file,
                    left,
                    "deleted",
                    lambda _: folder.finished,
                    folder.claim_if_free,
                )

    def _study(self, file: Path) -> None:
        self.count([file])
        try:
            read_own_json(file)
        except DamagedFile as damaged:
            first = RunFolder(file.parent.with_name(file.stem.rpartition("-")[0]))
            if (spec := _known_spec(first)) and not is_of_this_version(first, spec):
                remedy = "deleted, since an older version made its trials; tune again"
                self.delete(file, damaged.reason, remedy, _is_damaged_json)
                return
            again = (
                "`ssmlbench run --tuned` or the same `ssmlbench tune` rebuilds it from its trials"
            )
            self.add(file, damaged.reason, again, repaired=False)

    def _queue(self, root: Path) -> None:
        files = sorted(queue_folder(root).glob("*.json"))
        self.count(files)

        def damaged(file: Path) -> bool:
            # Its name is of one process, which writes it only while it holds the lock.
            return _is_damaged_json(file) and not is_held(file.with_suffix(".lock"))

        for file in files:
            self.delete(file, "damaged", "deleted; its runs no longer count as queued", damaged)
        self.folders(named_below(queue_folder(root), "*"))
        if not self.dry_run:
            sweep(root)

    # ---------------------------------------------------------------------------------------- cache

    def _task(self, folder: Path, plugins: Plugins) -> None:
        self.count(_files_in(folder))
        damaged = _task_damage(folder) and self._task_damage_if_free(folder)
        if damaged is None or is_of_another_format(folder):
            return
        card = read_json(card_file(folder)) or {}
        name = card.get("name") if card.get("folder", folder.name) == folder.name else None
        adapter = plugins.datasets[name]() if name in list(plugins.datasets) else None
        remedy = "prepared again" if adapter else "prepared again when it is used next"
        finding = Finding(damaged.file, damaged.reason, remedy)

        def prepare_again() -> None:
            if adapter is not None:
                prepare(adapter)

        self.repair([finding], prepare_again)

    def _task_damage_if_free(self, folder: Path) -> DamagedFile | None:
        """The damage of a data set that no process is replacing: files are missing meanwhile."""
        lock = folder.with_name(f"{folder.name}.lock")
        if is_held(lock):
            return None
        try:
            with nullcontext(True) if self.dry_run else held_if_free(lock) as free:
                return _task_damage(folder) if free else None
        except OSError:  # a cache that can only be read; `prepare` says so
            return _task_damage(folder)

    def _unfinished(self, folder: Path) -> None:
        lock = folder.with_name(f"{folder.stem}.lock")
        if not is_held(lock):
            finding = Finding(folder, "left by a process that was killed", "deleted")
            delete = partial(shutil.rmtree, folder)
            self.repair([finding], delete, folder.is_dir, partial(held_if_free, lock))

    def _shards(self, folder: ShardFolder, damaged: Callable[[], list[DamagedFile]]) -> None:
        """Check cached rows. damaged: finds the damaged files of the folder."""
        self.count(_files_in(folder.path))
        if is_held(folder.lock_file):
            return

        def delete() -> None:
            for damage in damaged():
                discard(damage.file)
            discard(folder.about_file)

        remedy = "deleted; computed again when needed"
        findings = [Finding(damage.file, damage.reason, remedy) for damage in damaged()]
        hold = partial(held_if_free, folder.lock_file)
        self.repair(findings, delete, lambda: bool(damaged()), hold)


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


def _is_damaged_json(file: Path) -> bool:
    return bool(failures(read_own_json, file))


def _damaged_features(folder: FeatureFolder) -> list[DamagedFile]:
    return [*folder.damaged(), *folder.damaged_state()]


def _files_in(folder: Path) -> list[Path]:
    """The content of a folder; nothing if it is deleted meanwhile."""
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
