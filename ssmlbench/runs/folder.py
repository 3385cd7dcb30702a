"""The results folder: one folder for each run, which is finished if and only if result.json exists.

Plain files in a fixed layout: two machines can write one shared folder, and results merge by copying.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from ssmlbench.core.errors import UserError
from ssmlbench.core.files import acquire_telling, read_json, write_atomically
from ssmlbench.core.spec import RunSpec


@dataclass(frozen=True)
class RunFolder:
    """A run's folder: results/<dataset>/<regime>-<π>/<method>/<seed>-<hash>."""

    path: Path

    @classmethod
    def of(cls, results: Path, spec: RunSpec) -> RunFolder:
        """The folder of a run in a results folder."""
        parts = (spec.dataset, spec.regime_label, spec.method, f"{spec.seed}-{spec.hash}")
        return cls(Path(results).joinpath(*parts))

    @property
    def spec_file(self) -> Path:
        """The run's spec."""
        return self.path / "spec.json"

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
        """What the judge of an unfinished run has found so far."""
        return self.path / "judgements.safetensors"

    @property
    def progress_file(self) -> Path:
        """How far the run is, while it is made."""
        return self.path / "progress.json"

    @property
    def error_file(self) -> Path:
        """Why the run failed, until it is made."""
        return self.path / "error.json"

    @property
    def lock_file(self) -> Path:
        """Held by the process that makes the run."""
        return self.path / ".lock"

    @property
    def finished(self) -> bool:
        """Whether the run is finished."""
        return self.result_file.is_file()

    @contextmanager
    def claim(self, waits: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the run for this process; the lock of a killed process is free at once.

        waits: called once, if another process holds it and this one has to wait.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.lock_file)
            acquire_telling(lock, waits)
        except OSError as error:
            raise UserError(
                f"cannot write to {self.path}: {error.strerror or error}; choose another folder "
                "with --results"
            ) from None
        try:
            yield
        finally:
            lock.release()
            if self.finished:
                self.lock_file.unlink(missing_ok=True)

    def record_failure(self, spec: RunSpec, error: str, trace: str = "") -> None:
        """Write the error to error.json, for `status` and for readers of the folder."""
        facts = {
            "error": error,
            "traceback": trace,
            "time": time.time(),
            "attempts": (read_json(self.error_file) or {}).get("attempts", 0) + 1,
            "host": socket.gethostname(),
        }
        with suppress(OSError):  # where nothing can be written, that is the error itself
            self.path.mkdir(parents=True, exist_ok=True)
            write_atomically(self.spec_file, json.dumps(spec.as_dict(), indent=1))
            write_atomically(self.error_file, json.dumps(facts, indent=1))
            self.progress_file.unlink(missing_ok=True)

    def remove_if_empty(self, below: Path) -> None:
        """Take away a folder in which nothing was written, and the empty ones above it."""
        self.lock_file.unlink(missing_ok=True)
        folder = self.path
        while folder != below and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent
