"""Finished runs are copied to TensorBoard, MLflow and W&B; no logger can make a run fail.

MLflow and W&B are stood in for by modules with the same calls where they are not installed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ssmlbench.api import DatasetAdapter, Row
from ssmlbench.core.errors import UserError
from ssmlbench.core.events import AlreadyDone, Done, Failed
from ssmlbench.core.spec import RunSpec
from ssmlbench.grid import loggers
from ssmlbench.grid.dispatch import Dispatch
from ssmlbench.grid.from_python import _make
from ssmlbench.grid.loggers import LOGGERS, LoggedRun, LoggingThread, RunLogger, logger_names
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.finished import Finished, read_finished
from ssmlbench.runs.resolve import resolve


class TinyNumbers(DatasetAdapter):
    """Vectors of four numbers and two labels."""

    name = "tiny-numbers"
    kind = "vector"
    backbone = "vector"

    def label_names(self) -> list[str]:
        return ["first", "second"]

    def rows(self, split: str) -> Iterator[Row]:
        random = np.random.default_rng(len(split))
        for _ in range(30):
            numbers = random.normal(size=4)
            yield Row(numbers, tuple(np.flatnonzero(numbers[:2] > 0).tolist()))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("loggers") / "results"
    plugins = Plugins()
    plugins.add(TinyNumbers)
    for seed in (0, 11):
        fields: dict[str, Any] = {"method": "bce", "epochs": 3, "warmup_epochs": 1}
        spec = resolve(plugins, {}, dataset="tiny-numbers", pi=0.3, seed=seed, **fields)
        execute(spec, plugins, RunContext(root, "cpu"))
    return root


@pytest.fixture
def runs(results: Path) -> list[Finished]:
    return sorted(read_finished([results])[0], key=lambda run: run.spec.seed)


@pytest.fixture
def copied(results: Path, tmp_path: Path) -> Path:
    """The runs in a results folder that has no logs beside it yet."""
    (tmp_path / "results").symlink_to(results)
    return tmp_path / "results"


def log(names: list[str], results: Path, events: list[tuple[RunSpec, Any]]) -> list[str]:
    warned: list[str] = []
    with LoggingThread(names, results, warned.append) as thread:
        listener = thread.listening(lambda spec, event: None)
        for spec, event in events:
            listener(spec, event)
    return warned


def test_names_sort_and_numbers_are_those_of_the_run(runs: list[Finished]) -> None:
    logged = [LoggedRun.of(run) for run in runs]
    assert [run.name for run in logged] == sorted(run.name for run in reversed(logged))
    first, run = logged[0], runs[0]
    assert first.name.startswith("tiny-numbers/semi π=0.3/bce/seed-000-") or "bce" in first.name
    assert [epoch for epoch, _ in first.curves] == [1, 2, 3]
    assert "history/loss_labelled" in first.curves[0][1]
    assert (
        first.metrics["final/calibrated/map"]
        == run.result["metrics"]["calibrated"]["default"]["map"]
    )
    assert first.values["method"] == "bce"


def test_logs_of_trials_are_where_those_of_runs_are(tmp_path: Path) -> None:
    folders = [LoggingThread([], tmp_path / name, print).folder for name in ("r", "r/.tune")]
    assert folders == [tmp_path / "r-logs"] * 2


class Kept(RunLogger):
    """A logger that remembers."""

    name = "kept"
    package = "kept"
    runs: list[LoggedRun] = []

    def log(self, run: LoggedRun) -> None:
        self.runs.append(run)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[LoggedRun]:
    monkeypatch.setitem(LOGGERS, "kept", Kept)
    monkeypatch.setattr(Kept, "runs", [])
    return Kept.runs


def test_every_finished_run_is_logged_once(
    runs: list[Finished], copied: Path, kept: list[LoggedRun]
) -> None:
    first, second = (run.spec for run in runs)
    assert log(["kept"], copied, [(first, Done(0.5, 1.0)), (second, Failed("no"))]) == []
    assert [run.spec for run in kept] == [first]
    # The same command again: what is logged is not logged twice, what is missing is.
    log(["kept"], copied, [(first, AlreadyDone()), (second, AlreadyDone())])
    assert [run.spec for run in kept] == [first, second]


def _raise(self: RunLogger, run: LoggedRun) -> None:
    raise OSError("the server said no\nand more")


def test_a_failing_logger_is_one_warning_and_others_go_on(
    runs: list[Finished],
    copied: Path,
    kept: list[LoggedRun],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LOGGERS["wandb"], "log", _raise)
    warned = log(["wandb", "kept"], copied, [(run.spec, Done(0.5, 1.0)) for run in runs])
    assert warned == ["--log wandb: OSError: the server said no; runs are not logged there"]
    assert len(kept) == 2


@pytest.mark.parametrize("error", [SystemExit(1), OSError(28, "No space left on device")])
def test_runs_that_python_asks_for_are_logged_and_trouble_is_a_warning(
    error: BaseException,
    runs: list[Finished],
    copied: Path,
    kept: list[LoggedRun],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(self: RunLogger, run: LoggedRun) -> None:
        raise error

    monkeypatch.setattr(LOGGERS["mlflow"], "log", fail)
    dispatch = Dispatch(RunContext(copied, "cpu"))
    specs, plugins = [run.spec for run in runs], Plugins()
    plugins.add(TinyNumbers)
    with pytest.warns(UserWarning, match=f"--log mlflow: {type(error).__name__}"):
        assert _make(specs, plugins, dispatch, False, logger_names("kept, mlflow")) == []
    assert [run.spec for run in kept] == specs


def test_a_package_that_is_missing_is_a_warning_with_the_command(
    runs: list[Finished], copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    (warning,) = log(["wandb"], copied, [(runs[0].spec, Done(0.5, 1.0))])
    assert "pip install 'ssmlbench[wandb]'" in warning


def test_a_logger_that_hangs_does_not_hold_the_grid(
    runs: list[Finished], copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = threading.Event()
    monkeypatch.setattr(LOGGERS["wandb"], "log", lambda self, run: free.wait())
    monkeypatch.setattr(loggers, "LAST_SECONDS", 0.05)
    (warning,) = log(["wandb"], copied, [(runs[0].spec, Done(0.5, 1.0))])
    free.set()
    assert "the same command logs the rest" in warning


def test_an_unknown_logger_is_one_line() -> None:
    with pytest.raises(UserError, match="--log tensorbord"):
        logger_names("wandb, tensorbord")
    with pytest.raises(UserError, match="--log is empty"):
        logger_names(",")


def test_tensorboard_reads_what_was_written(runs: list[Finished], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = LoggedRun.of(runs[0])
    LOGGERS["tensorboard"](tmp_path).log(run)
    (folder,) = {file.parent for file in tmp_path.rglob("events.*")}
    assert folder == tmp_path / run.name
    events = EventAccumulator(str(folder))
    events.Reload()
    curve = [(e.step, e.value) for e in events.Scalars("history/loss_labelled")]
    expected = [(epoch, row["history/loss_labelled"]) for epoch, row in run.curves]
    assert curve == [(epoch, pytest.approx(value)) for epoch, value in expected]
    last = events.Scalars("final/calibrated/map")[-1].value
    assert last == pytest.approx(run.metrics["final/calibrated/map"])


class FakeMlflow:
    """MlflowClient's calls, kept."""

    def __init__(self, uri: str):
        self.uri = uri
        self.metrics: dict[tuple[str, int], float] = {}
        self.params: dict[str, str] = {}
        self.name = self.ended = ""
        FakeMlflow.last = self

    last: Any = None

    def get_experiment_by_name(self, name: str) -> None:
        return None

    def create_experiment(self, name: str) -> str:
        return "1"

    def create_run(self, experiment_id: str, *, run_name: str, tags: dict[str, str]) -> Any:
        self.name = run_name
        return SimpleNamespace(info=SimpleNamespace(run_id="a"))

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
        assert len(metrics) + len(params) <= 100  # the server's limit
        self.metrics |= {(m.key, m.step): m.value for m in metrics}
        self.params |= {p.key: p.value for p in params}

    def set_terminated(self, run_id: str) -> None:
        self.ended = run_id


def test_mlflow_gets_curves_spec_and_metrics(
    runs: list[Finished], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake: Any = ModuleType("mlflow")
    fake.MlflowClient = FakeMlflow
    fake.entities = ModuleType("mlflow.entities")
    fake.entities.Metric = lambda key, value, timestamp, step: SimpleNamespace(
        key=key, value=value, step=step
    )
    fake.entities.Param = lambda key, value: SimpleNamespace(key=key, value=value)
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    monkeypatch.setitem(sys.modules, "mlflow.entities", fake.entities)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = LoggedRun.of(runs[0])
    LOGGERS["mlflow"](tmp_path).log(run)
    client = FakeMlflow.last
    assert client.uri.startswith("sqlite:///")
    assert client.name == run.name
    assert client.params["method"] == "bce"
    for epoch, row in run.curves:
        assert all(client.metrics[name, epoch] == value for name, value in row.items())
    assert client.metrics["final/calibrated/map", 3] == run.metrics["final/calibrated/map"]
    assert client.ended == "a"


def test_wandb_gets_curves_spec_and_metrics_offline(
    runs: list[Finished], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: dict[str, Any] = {"rows": [], "summary": {}, "ended": False}
    fake: Any = ModuleType("wandb")
    fake.Settings = lambda **settings: settings

    def init(**settings: Any) -> Any:
        said.update(settings)
        return SimpleNamespace(
            log=lambda row, step: said["rows"].append((step, row)),
            summary=said["summary"],
            finish=lambda: said.update(ended=True),
        )

    fake.init = init
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    run = LoggedRun.of(runs[0])
    LOGGERS["wandb"](tmp_path).log(run)
    assert said["mode"] == "offline"
    assert said["name"] == run.name
    assert said["config"]["method"] == "bce"
    assert said["rows"] == run.curves
    assert said["summary"] == run.metrics
    assert said["ended"]
