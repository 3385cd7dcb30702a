"""A run that is stopped or killed at any point, with checkpoints that are due rarely, keeps its bits."""

from __future__ import annotations

import csv
import ctypes
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from ssmlbench.core import prefetch, stopping
from ssmlbench.core.errors import UserError
from ssmlbench.core.events import CheckpointSaved, EpochEnded, Event, Failed, Resumed
from ssmlbench.core.spec import RunSpec
from ssmlbench.core.stopping import Stopped
from ssmlbench.grid.dispatch import Dispatch
from ssmlbench.grid.run_one import SealedRun
from ssmlbench.grid.status import read_states
from ssmlbench.plugins.loader import Plugins
from ssmlbench.runs import sealed_run
from ssmlbench.runs.context import RunContext
from ssmlbench.runs.execute import execute
from ssmlbench.runs.folder import RunFolder
from ssmlbench.runs.resolve import resolve
from ssmlbench.runs.training_process import TrainingProcess
from ssmlbench.training import saving
from ssmlbench.training.checkpoint import Checkpoint
from tests.grid.test_grid import is_alive
from tests.runs.test_execute import DATASET, SLOW_METHOD, wait_for

RARELY = "1000"
EPOCHS = 6
WAYS = [("bce", "last"), ("cap", "val"), ("softmatch", "oracle")]


class Killed(BaseException):
    """As SIGKILL: nobody saves anything."""


QUICK: set[tuple[str, type[BaseException]]] = {
    ("bce", KeyboardInterrupt),
    ("cap", Stopped),
    ("softmatch", Killed),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Plugins:
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "tiny.py").write_text(DATASET)
    (folder / "slow.py").write_text(SLOW_METHOD)
    return Plugins([folder / "tiny.py", folder / "slow.py"])


@pytest.fixture(autouse=True)
def rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(saving.VARIABLE, RARELY)


def spec_of(plugins: Plugins, method: str, selection: str = "last") -> RunSpec:
    fields: dict[str, Any] = {"dataset": "tiny", "pi": 0.3, "epochs": EPOCHS, "batch_size": 16}
    return resolve(plugins, {}, method=method, selection=selection, **fields)


def numbers(folder: RunFolder) -> dict[str, Any]:
    """All that a run has measured, apart from times."""
    history = list(csv.DictReader(folder.history_file.open()))
    timed = ("seconds", "samples_per_second", "peak_memory_mb")
    model = load_file(folder.weights_file)
    return {
        "scores": folder.scores_file.read_bytes(),
        "diagnostics": (folder.path / "diagnostics.safetensors").read_bytes(),
        "model": {name: values.tobytes() for name, values in model.items()},
        "history": [{k: v for k, v in row.items() if k not in timed} for row in history],
        "selected": json.loads(folder.result_file.read_text())["selected_epoch"],
    }


@pytest.fixture(scope="module")
def undisturbed(found: Plugins, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    made: dict[str, Any] = {}

    def call(spec: RunSpec) -> Any:
        if spec.hash not in made:
            results = tmp_path_factory.mktemp("undisturbed")
            execute(spec, found, RunContext(results, "cpu", 1))
            made[spec.hash] = numbers(RunFolder.of(results, spec))
        return made[spec.hash]

    return call


def saved_epochs(folder: RunFolder) -> tuple[int, int]:
    """Those of the checkpoint, and of the judge's file; 0 where there is none."""
    files = (folder.checkpoint_file, folder.judgements_file)
    training, judge = (Checkpoint(file).load().epochs if file.exists() else 0 for file in files)
    return training, judge


@pytest.mark.parametrize(
    ("method", "selection", "how"),
    [
        pytest.param(*way, how, marks=() if (way[0], how) in QUICK else pytest.mark.slow)
        for way in WAYS
        for how in (Stopped, KeyboardInterrupt, Killed)
    ],
)
def test_ended_again_and_again_at_random_points_a_run_has_the_bits_of_one_that_was_not(
    found: Plugins,
    undisturbed: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    selection: str,
    how: type[BaseException],
) -> None:
    spec = spec_of(found, method, selection)
    context, folder = RunContext(tmp_path, "cpu", 1), RunFolder.of(tmp_path, spec)
    draw, ended, counter = random.Random(f"{method} {how}"), 0, [0]
    # Written now and then: a stop may come just after, just before and long after a checkpoint.
    monkeypatch.setattr(saving.time, "monotonic", lambda: draw.choice([0.0, 0.0, 2000.0]))

    def count_down() -> None:
        counter[0] -= 1
        if counter[0] == 0:
            raise how

    monkeypatch.setattr(prefetch, "safe_point", count_down)
    for _ in range(8):
        counter[0], epochs = draw.randrange(5, 80), []
        before = saved_epochs(folder)[0]

        def notify(event: Event, epochs: list[int] = epochs) -> None:
            if isinstance(event, EpochEnded):
                epochs.append(event.epoch)

        try:
            execute(spec, found, context, notify)
            break
        except how:
            ended += 1
        training, judge = saved_epochs(folder)
        assert judge >= training >= before
        # The last epoch is not saved, and a kill loses what was not due yet.
        assert how is Killed or training >= min(max(epochs, default=0), EPOCHS - 1)
    counter[0] = 0
    execute(spec, found, context)
    assert ended > 1
    assert numbers(folder) == undisturbed(spec)
    assert not folder.checkpoint_file.exists()


@pytest.mark.parametrize(("method", "selection"), WAYS)
def test_killed_between_the_files_of_judge_and_training_it_has_the_same_bits(
    found: Plugins,
    undisturbed: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    selection: str,
) -> None:
    spec, events = spec_of(found, method, selection), []
    context, folder = RunContext(tmp_path, "cpu", 1), RunFolder.of(tmp_path, spec)
    monkeypatch.setenv(saving.VARIABLE, "0")
    publish = Checkpoint.publish

    def killed(self: Checkpoint, state: Any) -> None:
        if self.file == folder.checkpoint_file and state.epochs >= 3:
            raise Killed
        publish(self, state)

    monkeypatch.setattr(Checkpoint, "publish", killed)
    with pytest.raises(Killed):
        execute(spec, found, context)
    monkeypatch.setattr(Checkpoint, "publish", publish)
    assert saved_epochs(folder) == (2, 3)
    execute(spec, found, context, events.append)
    assert Resumed(2) in events
    assert numbers(folder) == undisturbed(spec)


def test_a_short_run_writes_no_checkpoint_and_a_long_one_at_most_one_in_the_time(
    found: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(saving.time, "monotonic", lambda: clock[0])

    def saved_with(seconds_an_epoch: float, seed: int) -> list[int]:
        events: list[Event] = []

        def notify(event: Event) -> None:
            events.append(event)
            clock[0] += seconds_an_epoch if isinstance(event, EpochEnded) else 0

        spec = resolve(found, {}, method="bce", dataset="tiny", pi=0.3, epochs=EPOCHS, seed=seed)
        execute(spec, found, RunContext(tmp_path, "cpu", 1), notify)
        return [event.epoch for event in events if isinstance(event, CheckpointSaved)]

    monkeypatch.delenv(saving.VARIABLE)
    assert saved_with(1, 0) == []
    assert saved_with(25, 1) == [3]
    assert saved_with(30, 2) == [2, 4]
    assert saved_with(90, 3) == [1, 2, 3, 4, 5]  # the last one is not needed


@pytest.mark.parametrize("typed", ["soon", "-1", "nan"])
def test_a_time_that_is_none_is_one_line_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    monkeypatch.setenv(saving.VARIABLE, typed)
    with pytest.raises(UserError, match=f"{saving.VARIABLE}={typed}: must be a number of seconds"):
        Dispatch(RunContext(tmp_path, "cpu", 1)).check()


# ----------------------------------------------------------------------------- in its processes


def of_a_run(folder: RunFolder) -> tuple[int, int]:
    """The processes of judge and training."""
    judge = json.loads(folder.progress_file.read_text())["pid"]
    (training,) = Path(f"/proc/{judge}/task/{judge}/children").read_text().split()
    return judge, int(training)


@pytest.mark.parametrize(
    "signalled",
    [
        "the command",
        *(pytest.param(who, marks=pytest.mark.slow) for who in ("everybody", "Ctrl-C")),
    ],
)
def test_a_command_that_is_ended_has_its_runs_save_first(
    found: Plugins, undisturbed: Callable[..., Any], tmp_path: Path, signalled: str
) -> None:
    spec = spec_of(found, "slow")
    context, folder = RunContext(tmp_path, "cpu", 1), RunFolder.of(tmp_path, spec)

    def end(spec: RunSpec, event: Event) -> None:
        if not (isinstance(event, EpochEnded) and event.epoch == 3):
            return
        if signalled == "Ctrl-C":
            raise KeyboardInterrupt
        for pid in of_a_run(folder) if signalled == "everybody" else ():
            os.kill(pid, signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)

    dispatch = Dispatch(context)
    with pytest.raises(KeyboardInterrupt) as ended:
        dispatch.run(dispatch.plan([spec], found), end)
    assert isinstance(ended.value, Stopped) == (signalled != "Ctrl-C")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    training, judge = saved_epochs(folder)
    assert training >= 3
    assert judge == training
    assert not folder.error_file.exists()
    (state,) = read_states([tmp_path])
    assert (state.state, state.epoch) == ("stopped", training)
    events: list[Event] = []
    dispatch.run(dispatch.plan([spec], found), lambda spec, event: events.append(event))
    assert Resumed(training) in events
    assert numbers(folder) == undisturbed(spec)


def test_a_training_process_that_is_terminated_alone_saves_and_says_so(
    found: Plugins, undisturbed: Callable[..., Any], tmp_path: Path
) -> None:
    spec = spec_of(found, "slow")
    context, folder = RunContext(tmp_path, "cpu", 1), RunFolder.of(tmp_path, spec)
    run = SealedRun(spec, found, context)
    while not isinstance(event := run.next_event(), Failed):
        if isinstance(event, EpochEnded) and event.epoch == 2:
            os.kill(of_a_run(folder)[1], signal.SIGTERM)
    run.stop()
    assert event.text == "its training process died of SIGTERM"
    assert saved_epochs(folder)[0] >= 2
    execute(spec, found, context)
    assert numbers(folder) == undisturbed(spec)


def child_that(works: Callable[[], None]) -> int:
    """A process that has something to save, and has heard of signals when this returns."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        stopping.stop_on_sigterm()
        stopping.has_unsaved_work(True)
        os.write(writer, b"ready")
        works()
        os._exit(0)
    os.read(reader, 5)
    return pid


def test_a_run_that_reaches_its_time_limit_saves_first(tmp_path: Path) -> None:
    def save_when_asked() -> None:
        try:
            while True:
                time.sleep(0.01)
                stopping.safe_point()
        except Stopped:
            time.sleep(0.2)
            (tmp_path / "saved").touch()
            os._exit(stopping.EXIT_CODE)

    training = TrainingProcess(child_that(save_when_asked), Pipe()[0], Pipe()[0], 3600)
    training._time_out()
    assert (tmp_path / "saved").exists()
    assert training.code == stopping.EXIT_CODE
    assert not training.ended_by_judge


def test_a_second_wish_to_stop_ends_a_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its training may stand still, with epochs that are not saved."""
    monkeypatch.setattr(sealed_run, "STOP_SECONDS", 3600.0)
    ours, theirs = Pipe()

    def be_the_judge() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        training = TrainingProcess(child_that(lambda: time.sleep(3600)), Pipe()[0], Pipe()[0], None)
        training._given = True
        theirs.send(training.pid)
        sealed_run._end_with_owner(theirs, training)

    judge = child_that(be_the_judge)
    training = ours.recv()
    ours.send_bytes(b"stop")
    time.sleep(0.3)
    assert is_alive(training)
    ours.send_bytes(b"stop")
    wait_for(lambda: os.waitpid(judge, os.WNOHANG)[0])
    assert not is_alive(training)


def test_a_process_without_unsaved_work_ends_at_once() -> None:
    def saved() -> None:
        stopping.has_unsaved_work(False)
        signal.pause()

    pid = child_that(saved)
    while "S" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        time.sleep(0.01)
    os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == stopping.EXIT_CODE


def test_scores_are_those_of_the_selected_epoch(
    undisturbed: Callable[..., Any], found: Any
) -> None:
    """That the comparison above can tell: the runs select another epoch than the last."""
    chosen = [undisturbed(spec_of(found, *way))["selected"] for way in WAYS]
    assert chosen[0] == EPOCHS
    assert np.any(np.asarray(chosen) < EPOCHS)


def _takes_sigterm_natively() -> None:
    """Python still names the old handler afterwards."""
    ctypes.CDLL(None).signal(signal.SIGTERM, ctypes.c_void_p(1))  # SIG_IGN


def _takes_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _takes_sigterm_and_gets_it() -> None:
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))
    signal.raise_signal(signal.SIGTERM)


def _raises_another_interrupt() -> None:
    try:
        signal.raise_signal(signal.SIGTERM)
    except KeyboardInterrupt:
        raise KeyboardInterrupt from None


@pytest.mark.parametrize(
    "library",
    [
        _takes_sigterm,
        _takes_sigterm_natively,
        _takes_sigterm_and_gets_it,
        _raises_another_interrupt,
    ],
)
def test_a_library_that_handles_sigterm_itself_leaves_it_to_the_command(
    library: Callable[[], None],
) -> None:
    """Under Ray the exit code was 15, 134 with a trace, or 130, and runs did not save."""

    def command() -> None:
        with stopping.sigterm_raises():
            with stopping.keeping_sigterm_handler():
                library()
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Stopped):
        command()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_ctrl_c_is_no_sigterm() -> None:
    def command() -> None:
        with stopping.sigterm_raises(), stopping.keeping_sigterm_handler():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        command()
    assert raised.type is KeyboardInterrupt
