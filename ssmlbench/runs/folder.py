"""The results folder: one folder for each run, which is finished if and only if result.json is whole.

Plain files in a fixed layout: two machines can write one shared folder, and results merge by copying.
"""

from __future__ import annotations

import functools
import glob
import json
import shutil
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ssmlbench.core.checksums import FileFacts, stat_of, verify_beside, verify_file
from ssmlbench.core.errors import (
    BLOCKED,
    CHANGED,
    DamagedFile,
    RunFailed,
    UserError,
    disk_error,
    is_passing,
)
from ssmlbench.core.events import Failed
from ssmlbench.core.files import (
    PART,
    UNFINISHED_NAMES,
    discard,
    read_record,
    remove,
    temporary_beside,
    write_atomically,
    write_json,
)
from ssmlbench.core.locks import Lock, acquire_with_notice, held_if_free
from ssmlbench.core.names import is_path_part
from ssmlbench.core.plain_files import plain_bytes
from ssmlbench.core.plain_text import error_text, one_line
from ssmlbench.core.sealed_files import LOCK, SPEC
from ssmlbench.core.spec import RunSpec
from ssmlbench.runs.schema import is_damaged, is_of_folder

MAKES_AGAIN = "the same `ssmlbench run` makes the run again"
"""The remedy for a damaged file of a run."""

TRIALS = ".tune"
"""The results folder of the trials of studies, in the results folder."""


def whole_results(results: Path) -> Path:
    """The results folder of the user; for the folder of trials, the one that contains it."""
    return results.parent if results.name == TRIALS else results


def logs_of(results: Path) -> Path:
    """The folder beside a results folder in which `--log` keeps copies of results."""
    whole = whole_results(results)
    return whole.with_name(f"{whole.name}-logs")


def has_runs_of(results: Path, method: str) -> bool:
    """Whether a results folder holds folders of runs of a method, finished or not."""
    return any(results.glob(f"*/*/{glob.escape(method)}"))


@dataclass(frozen=True)
class Attempts:
    """The field of error.json that the next error counts on."""

    attempts: int = 0


@dataclass(frozen=True)
class RunFolder:
    """A run's folder: results/<dataset>/<regime>-<π>/<method>/<seed>-<hash>."""

    path: Path

    @classmethod
    def of(cls, results: Path, spec: RunSpec) -> RunFolder:
        """The folder of a run in a results folder."""
        for name in (spec.dataset, spec.method):
            if not is_path_part(name):
                raise UserError(f"{name[:60]!r} cannot be the name of a data set or method")
        parts = (spec.dataset, spec.regime_label, spec.method, f"{spec.seed}-{spec.hash}")
        return cls(Path(results).joinpath(*parts))

    @property
    def spec_file(self) -> Path:
        """The run's spec."""
        return self.path / SPEC

    @property
    def scores_file(self) -> Path:
        """Test scores, truth and the fitted parameters of decision rules."""
        return self.path / "scores.safetensors"

    @property
    def history_file(self) -> Path:
        """A row for each epoch."""
        return self.path / "history.csv"

    @property
    def result_file(self) -> Path:
        """The result; a run with this file is finished."""
        return self.path / "result.json"

    @property
    def computed_file(self) -> Path:
        """Metrics that were added after the run was made, as boards computed them."""
        return self.path / "computed.json"

    @property
    def checkpoint_file(self) -> Path:
        """The state from which an unfinished run continues."""
        return self.path / "checkpoint.safetensors"

    @property
    def judgements_file(self) -> Path:
        """The judge's state of an unfinished run.

        It lies beside the folder: the training process may read inside the folder.
        """
        return self.path.with_name(f".{self.path.name}.judgements.safetensors")

    @property
    def weights_file(self) -> Path:
        """The arrays of the run's model, if it is kept."""
        return self.path / "model.safetensors"

    @property
    def model_file(self) -> Path:
        """The description of the model: labels, decision rules, encoder, versions."""
        return self.path / "model.json"

    @property
    def progress_file(self) -> Path:
        """The progress of the run, while it is made."""
        return self.path / "progress.json"

    @property
    def error_file(self) -> Path:
        """Why the run failed, until it is made."""
        return self.path / "error.json"

    @property
    def scratch(self) -> Path:
        """The folder for temporary files of training, which the judge deletes at the end."""
        return self.path / ".scratch"

    @property
    def repeat_file(self) -> Path:
        """The spec of a damaged run that `ssmlbench doctor --rerun` repeats, until it is made."""
        return self.path / "repeat.json"

    @property
    def lock_file(self) -> Path:
        """Held by the process that makes the run."""
        return self.path / LOCK

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of a run whose names are fixed, those included that it has while it is made."""
        return (
            self.spec_file,
            self.scores_file,
            self.history_file,
            self.result_file,
            self.computed_file,
            self.checkpoint_file,
            self.judgements_file,
            self.weights_file,
            self.model_file,
            self.progress_file,
            self.error_file,
            self.repeat_file,
            self.lock_file,
        )

    @property
    def finished(self) -> bool:
        """Whether the run is finished: its result is there, and nothing of it is damaged."""
        return self.result_file.is_file() and self.damage() is None

    def damage(self) -> DamagedFile | None:
        """The damage of a finished run's files; None if there is none, or if it has no result.

        Cheap: of the files beside the result only those that were changed after it are read.
        """
        needed = (self.scores_file.name, self.history_file.name)
        try:
            verify_beside(self.result_file, self.recorded_files(), needed)
        except FileNotFoundError:
            return None
        except DamagedFile as damaged:
            return damaged
        return None

    def result_stamp(self) -> tuple[int, int] | None:
        """A stamp that changes when result.json is replaced; None if there is none."""
        try:
            status = self.result_file.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def drop_result_since(self, stamp: tuple[int, int] | None) -> None:
        """Delete a result.json that is not the one of `result_stamp`: a run that failed wrote none."""
        if self.result_stamp() != stamp:
            discard(self.result_file)

    def drop_leftovers(self) -> None:
        """Delete what an earlier attempt judged. For the holder of an unfinished run, before training.

        Training may read this folder, and files of scores hold test labels, half-written ones too. After
        training, what a plugin put in the place of the judge's files.
        """
        kept = (self.checkpoint_file, self.weights_file, self.model_file)
        judged = (self.result_file, self.computed_file, *self.written_files())
        unfinished = [file for kind in UNFINISHED_NAMES for file in self.path.glob(kind)]
        for file in (*judged, *unfinished, *self.unfinished_judgements()):
            # A plugin may have put a folder, a pipe or a link to an endless device in place of its model.
            if file not in kept or file.is_symlink() or not file.is_file():
                remove(file)

    def unfinished_judgements(self) -> list[Path]:
        """What judges that were killed while they wrote their judgements have left beside the folder."""
        name = glob.escape(self.judgements_file.name)
        return list(self.path.parent.glob(f".{name}.*{PART}"))

    def verify(self, name: str) -> None:
        """Raise DamagedFile unless a file has the checksum in result.json; without one, do nothing."""
        try:
            recorded = self.recorded_files()
        except (OSError, DamagedFile):  # scores are worth reading without a result
            return
        if name in recorded:
            try:
                verify_file(self.path / name, recorded[name], self.result_file)
            except DamagedFile as damaged:
                raise DamagedFile(damaged.file, damaged.reason, MAKES_AGAIN) from None

    def written_files(self) -> list[Path]:
        """The files of a finished run beside its result: scores, history, model and more."""
        while_made = (self.checkpoint_file, self.judgements_file)
        files = [*self.path.glob("*.safetensors"), *self.path.glob("*.csv")]
        files += [self.model_file] if self.model_file.is_file() else []
        return [file for file in files if file not in while_made]

    def recorded_files(self) -> dict[str, FileFacts]:
        """Size and checksum of the run's files as result.json has them; older results have none."""
        status = stat_of(self.result_file)
        return _recorded_files(self.result_file, status.st_ino, status.st_mtime_ns, status.st_size)

    @contextmanager
    def claim(self, waits: Callable[[], None] = lambda: None) -> Iterator[Lock]:
        """Hold the run for this process; the lock of a killed process is free at once.

        waits: called once, if another process holds it and this one has to wait.
        """
        try:
            lock = Lock(self.lock_file)
            acquire_with_notice(lock, waits)
        except OSError as error:
            if is_passing(error) or error.errno in CHANGED + BLOCKED:
                raise  # another folder would not help
            raise UserError(
                f"cannot write to {self.path}: {error.strerror or error}; choose another folder "
                "with --results"
            ) from None
        try:
            yield lock
        finally:
            lock.release(remove=True)
            self.remove_empty_folders()

    @contextmanager
    def claim_if_free(self) -> Iterator[bool]:
        """Hold the run in the block, as `held_if_free`."""
        with held_if_free(self.lock_file) as free:
            yield free
        self.remove_empty_folders()

    def delete(self) -> bool:
        """Delete the run and all its files, unless a process makes it at this moment."""
        with self.claim_if_free() as free:
            if free and self.path.is_dir():
                # At once: a process that waits for the run must not find half of it.
                unfinished = temporary_beside(self.path)
                self.path.rename(unfinished)
                for file in (self.judgements_file, *self.unfinished_judgements()):
                    remove(file)
                try:
                    shutil.rmtree(unfinished)
                except OSError as error:
                    raise UserError(
                        f"{self.path} is deleted, but files of it are left ({error.strerror}); "
                        "`ssmlbench doctor` deletes them"
                    ) from None
        return free

    def record_error(self, spec: RunSpec, error: Exception) -> Failed:
        """Write an exception that is being handled to error.json. Returns the run's last event."""
        expected = isinstance(error, UserError | RunFailed)
        text = one_line(error_text(error))
        text = text if expected and text else f"{type(error).__name__}: {text}".removesuffix(": ")
        if isinstance(error, OSError):
            text = disk_error(error) or text
        self.record_failure(spec, text, traceback.format_exc())
        return Failed(text)

    def record_failure(self, spec: RunSpec, error: str, trace: str = "") -> None:
        """Write the error to error.json, for `status` and for people who look into the folder."""
        before = read_record(self.error_file, Attempts) or Attempts()
        facts = {
            "error": error,
            "traceback": trace,
            "time": time.time(),
            "attempts": 1 + before.attempts,
            "host": socket.gethostname(),
        }
        with suppress(OSError):  # where nothing can be written, that is the error itself
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(self.spec_file, spec.as_dict())
            write_atomically(self.error_file, json.dumps(facts, indent=1))
            discard(self.progress_file)

    def remove_empty_folders(self) -> None:
        """Delete the run's folder and those above it, as far as nothing is in them."""
        with suppress(OSError):  # something is
            for folder in (self.path, *self.path.parents[:3]):
                with suppress(FileNotFoundError):
                    folder.rmdir()


@functools.lru_cache(maxsize=1 << 17)
def _recorded_files(result: Path, *version: int) -> dict[str, FileFacts]:
    """The `files` of a result; DamagedFile if it is not a whole result."""
    try:
        values = json.loads(plain_bytes(result))
    except (ValueError, RecursionError):
        raise DamagedFile(result, "not a whole JSON file") from None
    except OSError as error:
        if is_passing(error):  # a sound run would be deleted and made again
            raise
        raise DamagedFile(result, f"it cannot be read ({error.strerror})") from None
    if not isinstance(values, dict) or not {"spec", "metrics"} <= values.keys():
        raise DamagedFile(result, "it has no spec or no metrics")
    if is_damaged(values):
        raise DamagedFile(result, "its content is not what was written")
    if not is_of_folder(values, result.parent.name):
        raise DamagedFile(result, "it is the result of another run")
    files: dict[str, FileFacts] = values.get("files", {})
    if not isinstance(files, dict):
        raise DamagedFile(result, "it does not say which files are beside it")
    return files
