"""Copies finished runs to TensorBoard, MLflow or Weights & Biases.

A logger never makes a run fail: it works in its own thread, on finished runs, and its errors are warnings.
"""

from __future__ import annotations

import json
import logging
import math
import os
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from ssmlbench.core.errors import UserError
from ssmlbench.core.events import AlreadyDone, Done, Event, Listener
from ssmlbench.core.files import write_atomically
from ssmlbench.core.spec import RunSpec
from ssmlbench.core.suggestions import one_of
from ssmlbench.runs.finished import Finished, Unreadable, read_result
from ssmlbench.runs.folder import RunFolder, logs_of

LAST_SECONDS = 60.0
"""The longest time that the end of a grid waits for loggers: a server may not answer."""
BATCH = 100
"""Values that are sent to a server at a time."""


@dataclass(frozen=True)
class LoggedRun:
    """The logged values of a run."""

    spec: RunSpec
    values: Mapping[str, Any]  # of the spec
    curves: Sequence[tuple[int, Mapping[str, float]]]  # epoch, and its row of the history
    metrics: Mapping[str, float]  # after the last epoch: `final/calibrated/micro_f1`

    @property
    def name(self) -> str:
        """A name that sorts by data set, regime, method and seed."""
        spec = self.spec
        return f"{spec.dataset}/{spec.regime_label}/{spec.variant}/seed-{spec.seed:03d}-{spec.hash[:6]}"

    @classmethod
    def of(cls, run: Finished) -> LoggedRun:
        """Read the logged values from the folder of a finished run."""
        metrics = {
            f"final/{rule}/{name}": float(value)
            for rule, by_convention in run.result.get("metrics", {}).items()
            for name, value in by_convention.get("default", {}).items()
        }
        cost = run.result.get("cost", {})
        metrics |= {f"final/cost/{name}": float(value) for name, value in cost.items()}
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        values = {name: value for name, value in run.spec.as_dict().items() if value is not None}
        curves = list(_curves(RunFolder(run.folder).history_file))
        return cls(run.spec, values, curves, dict(sorted(finite.items())))


def _curves(file: Path) -> Iterator[tuple[int, dict[str, float]]]:
    import pandas as pd

    if not file.is_file():
        return
    history = pd.read_csv(file)
    numbers = history.select_dtypes("number").drop(columns="epoch", errors="ignore")
    for epoch, (_, row) in zip(history["epoch"], numbers.iterrows(), strict=True):
        values = {f"history/{name}": float(v) for name, v in row.items() if math.isfinite(v)}
        yield int(epoch), values


class RunLogger(ABC):
    """Copies runs to one service. Each service has a subclass."""

    name: ClassVar[str]
    package: ClassVar[str]  # the package to install

    def __init__(self, folder: Path):
        """folder: for its files."""
        self.folder = folder

    @abstractmethod
    def log(self, run: LoggedRun) -> None:
        """Copy a run. It may raise anything."""


class TensorBoardLogger(RunLogger):
    """A folder of event files for each run: `tensorboard --logdir FOLDER`."""

    name = "tensorboard"
    package = "tensorboard"

    def log(self, run: LoggedRun) -> None:
        """Write the curves, the spec as text and as hyper-parameters, and the last metrics."""
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(str(self.folder / run.name)) as writer:
            for epoch, values in run.curves:
                for name, value in values.items():
                    writer.add_scalar(name, value, epoch)
            writer.add_text("spec", f"```json\n{json.dumps(run.values, indent=1)}\n```")
            simple = {k: v for k, v in run.values.items() if isinstance(v, str | int | float)}
            writer.add_hparams(simple, dict(run.metrics), run_name=".")


class MlflowLogger(RunLogger):
    """An experiment for each data set; a local database, or the server in MLFLOW_TRACKING_URI."""

    name = "mlflow"
    package = "mlflow"

    def log(self, run: LoggedRun) -> None:
        """Create a run with the curves, the spec as parameters, and the last metrics."""
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # no line for each new table
        local = f"sqlite:///{self.folder / 'mlflow.db'}"
        client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or local)
        title = f"ssmlbench/{run.spec.dataset}"
        experiment = client.get_experiment_by_name(title)
        number = experiment.experiment_id if experiment else client.create_experiment(title)
        tags = {"ssmlbench.hash": run.spec.hash, "ssmlbench.method": run.spec.variant}
        run_id = client.create_run(number, run_name=run.name, tags=tags).info.run_id
        now = int(time.time() * 1000)
        rows = [*run.curves, (run.curves[-1][0] if run.curves else 0, run.metrics)]
        metrics = [Metric(k, v, now, epoch) for epoch, values in rows for k, v in values.items()]
        params = [Param(name, str(value)[:500]) for name, value in run.values.items()]
        for start in range(0, len(metrics), BATCH):
            client.log_batch(run_id, metrics=metrics[start : start + BATCH])
        for start in range(0, len(params), BATCH):
            client.log_batch(run_id, params=params[start : start + BATCH])
        client.set_terminated(run_id)


class WandbLogger(RunLogger):
    """Weights & Biases, offline unless WANDB_MODE says otherwise: `wandb sync` uploads later."""

    name = "wandb"
    package = "wandb"

    def log(self, run: LoggedRun) -> None:
        """Write a run with the curves, the spec as its configuration, and the last metrics."""
        import wandb

        mode: Any = os.environ.get("WANDB_MODE", "offline")
        logged = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "ssmlbench"),
            name=run.name,
            id=run.spec.hash,
            group=f"{run.spec.dataset}/{run.spec.regime_label}",
            job_type=run.spec.variant,
            config=dict(run.values),
            dir=str(self.folder),
            mode=mode,
            settings=wandb.Settings(silent=True),
        )
        for epoch, values in run.curves:
            logged.log(dict(values), step=epoch)
        logged.summary.update(dict(run.metrics))
        logged.finish()


LOGGERS: dict[str, type[RunLogger]] = {
    cls.name: cls for cls in (TensorBoardLogger, MlflowLogger, WandbLogger)
}
"""The loggers of `--log`."""


def logger_names(typed: str | None) -> list[str]:
    """The names in `tensorboard,wandb`; a UserError for an unknown logger."""
    names = [name.strip() for name in (typed or "").split(",") if name.strip()]
    if typed is not None and not names:
        raise UserError("--log is empty; leave it out, or type at least one of its names")
    for name in names:
        one_of(name, tuple(LOGGERS), "--log")
    return names


class LoggingThread:
    """Logs the runs of a grid as they finish, each once. Use as a context manager around the grid."""

    def __init__(self, names: Sequence[str], results: Path, warn: Callable[[str], None]):
        """names: of loggers. results: the folder of the runs; the logs are written beside it."""
        self.results = results
        self.warn = warn
        self.folder = logs_of(results)
        self.loggers = [LOGGERS[name](self.folder / name) for name in dict.fromkeys(names)]
        self._waiting: queue.Queue[RunSpec | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        if self.loggers:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait until all runs are logged, at most LAST_SECONDS; after Ctrl-C not at all."""
        if not self.loggers or (kind is not None and issubclass(kind, KeyboardInterrupt)):
            return
        self._waiting.put(None)
        self._thread.join(LAST_SECONDS)
        if self._thread.is_alive():
            self.warn("--log has not finished and is stopped; the same command logs the rest")

    def listening(self, listener: Listener) -> Listener:
        """A listener that calls `listener` and logs every finished run."""
        if not self.loggers:
            return listener

        def log_finished(spec: RunSpec, event: Event) -> None:
            listener(spec, event)
            if isinstance(event, Done | AlreadyDone):
                self._waiting.put(spec)

        return log_finished

    def _work(self) -> None:
        while (spec := self._waiting.get()) is not None:
            for logger in list(self.loggers):
                try:
                    self._log(logger, spec)
                except (Exception, SystemExit) as error:  # a library, a disk or a server
                    self.loggers.remove(logger)
                    self.warn(
                        f"--log {logger.name}: {_reason(error, logger)}; runs are not logged there"
                    )

    def _log(self, logger: RunLogger, spec: RunSpec) -> None:
        mark = logger.folder / ".logged" / spec.hash
        run = read_result(RunFolder.of(self.results, spec).path)
        if mark.exists() or isinstance(run, Unreadable):
            return
        mark.parent.mkdir(parents=True, exist_ok=True)
        logger.log(LoggedRun.of(run))
        write_atomically(mark, "")


def _reason(error: BaseException, logger: RunLogger) -> str:
    if isinstance(error, ImportError):
        return f"{error}; install it with `pip install 'ssmlbench[{logger.name}]'`"
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text[:200]}"
